"""Tests ``suffolk lookup``: tokens, hints if tokenization hides a match, document ids, services, and draft trees."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

import pytest
from rich.cells import cell_len
from rich.console import Console
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from suffolk.cli.lookup import Options, make_report
from suffolk.cli.lookup_lines import shown
from suffolk.cli.main import main
from suffolk.datastore.datastore import open_datastore
from tests.support.draft_server import serving
from tests.support.stores import make_store

LINES = ['raise ValueError("no")', 'raise ValueError("yes")', "return None", "y-ret", "y-return", "y-return"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Indented lines of code with a byte-level tokenizer that has a token for ``("``."""
    folder = tmp_path_factory.mktemp("lookup")
    words = ["raise", "ValueError", '("', "return"]
    vocabulary = {letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges: list[tuple[str, str]] = []
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append((word[: end - 1], word[end - 1]))
    for word in ("raise", "ValueError"):
        vocabulary[f"\u0120{word}"] = len(vocabulary)
        merges.append(("\u0120", word))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    records = [{"text": f"if x:\n    {line}\n", "id": f"line-{place}"} for place, line in enumerate(LINES)]
    (folder / "code.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    words = ["build", "--tokenizer", str(folder / "tokenizer.json"), "--output", str(folder / "store")]
    assert main([*words, "--id-field", "id", str(folder / "code.jsonl")]) == 0
    return folder / "store"


def test_the_tokens_are_shown_and_where_the_match_begins(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lookup", str(store), "x ValueError"]) == 0
    out = capsys.readouterr().out
    assert "context       2 tokens: 'x' | ' ValueError'\n" in out
    assert "match length  1 of 2 tokens: ' ValueError'\n" in out


def test_a_text_that_ends_inside_a_token_is_explained(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lookup", str(store), " raise ValueError("]) == 0
    out = capsys.readouterr().out
    assert "context       3 tokens: ' raise' ' ValueError' '(' |\n" in out
    assert "no match" in out
    assert "hint          the text ends inside a token: the 2 tokens before '(' are followed by" in out
    assert "followed by '(\"' 2 times" in out
    assert main(["lookup", str(store), ' raise ValueError("']) == 0
    assert "hint" not in capsys.readouterr().out


def test_a_text_that_matches_but_mostly_goes_on_inside_a_token_is_explained(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lookup", str(store), "y-ret"]) == 0
    out = capsys.readouterr().out
    assert "match length  3 of 3 tokens" in out
    assert "match count   1\n" in out
    assert "the 2 tokens before 'ret' are followed by 'return' 2 times; end the text before 'ret'" in out
    assert main(["lookup", str(store), "--", "-ret"]) == 0
    assert "inside a token: the token before 'ret' is followed by" in capsys.readouterr().out
    assert main(["lookup", str(store), "y-return"]) == 0
    assert "hint" not in capsys.readouterr().out


def test_a_text_without_the_space_of_its_line_is_explained(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lookup", str(store), 'raise ValueError("']) == 0
    out = capsys.readouterr().out
    assert "match length  2 of 3 tokens" in out
    assert "hint          with a space in front, all 3 tokens match, 2 times" in out


def test_ids_of_documents_are_shown_and_taken(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lookup", str(store), "return None"]) == 0
    document = f"{store.parent}/code.jsonl#line-2"
    assert f"by document id\n  {document}, token " in capsys.readouterr().out
    assert main(["info", str(store)]) == 0
    assert (
        f"document ids       such as {store.parent}/code.jsonl#line-0  (for 'suffolk delete --id')"
        in capsys.readouterr().out
    )
    assert main(["delete", str(store), "--id", "line-2", "--id", "nothing"]) == 1
    error = capsys.readouterr().err
    assert f"suffolk: no such document: line-2; did you mean {document}?\n" in error
    assert (
        "suffolk: no such document: nothing; an id is FILE of a text file, FILE:LINE of a record, or FILE#ID" in error
    )
    assert f"such as {store.parent}/code.jsonl#line-0" in error
    assert error.count("\n") == 2  # a line for each id, and none that repeats them
    assert main(["delete", str(store), "--id", document, "--dry-run"]) == 0
    assert "would delete  1 document" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--min-match 20", "--min-match is 20; it must not be above --max-match, 16"),
        (
            "--max-match 60",
            "--max-match 60 + --max-depth 10 is above the datastore's order depth 64; lower one of them or",
        ),
    ],
)
def test_bad_lengths_name_the_options(
    store: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    assert main(["lookup", str(store), "return", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"suffolk: {message}")


def test_a_service_is_looked_up_by_text_and_drafts(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [" raise ValueError", "--draft", "--max-nodes", "3"]
    assert main(["lookup", str(store), *words]) == 0
    local = capsys.readouterr().out
    with open_datastore(store) as opened, serving({"code": opened}) as server:
        url = f"grpc://{server.listening[0]}/code"
        assert main(["lookup", url, *words]) == 0
        remote = capsys.readouterr().out
        assert main(["lookup", url, *words, "--json"]) == 0
        tree = json.loads(capsys.readouterr().out)["draft"]
        assert tree["tokens"] == opened.draft(" raise ValueError", max_nodes=3).tokens.tolist()
    assert "draft         3 nodes: estimated acceptance, count, token\n" in remote
    assert local == remote
    place = f"  {store.parent}/code.jsonl#line-0, token 9\n"
    assert place + r"""    f x:\n   | raise ValueError|("no")\n""" + "\n" in remote


def test_a_missing_shard_is_told(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_datastore(store) as opened, serving({"code": opened}) as server:
        url = f"grpc://{server.listening[0]}"
        for address, partial in ((f"{url}/code", False), (f"{url}+127.0.0.1:1/code", True)):
            assert main(["lookup", address, "return"]) == 0
            assert ("\npartial       some shards could not be searched" in capsys.readouterr().out) == partial
            assert main(["lookup", address, "return", "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["partial"] == partial


def test_a_service_may_show_no_occurrences(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_datastore(store) as opened, serving({"code": opened}, shows_occurrences=False) as server:
        assert main(["lookup", f"grpc://{server.listening[0]}", "return"]) == 0
        assert ": this server shows no occurrences; ask its operator" in capsys.readouterr().out


def test_continuations_are_a_tree(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lookup", str(store), "--max-depth", "3", "--occurrences", "0", "    "]) == 0
    assert capsys.readouterr().out.partition("continuations")[2].splitlines() == [
        " count, share, text",
        "           3   75.0%  ├─ 'y-'",
        "           2   50.0%  │  ├─ 'return'",
        "           1   25.0%  │  └─ 'ret'",
        "           1   25.0%  └─ 'return N'",
    ]


def test_several_datastores_are_one_and_each_count_is_shown(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copytree(store, tmp_path / "copy")
    words = ["lookup", str(store), "--also", str(tmp_path / "copy"), "y-ret"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "match count   2\n" in out
    assert "           2  100.0%  └─ '\\n'  (store 1, copy 1)\n" in out
    assert f"  store: {store.parent}/code.jsonl#line-3, token " in out
    assert f"  copy: {store.parent}/code.jsonl#line-3, token " in out
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["draft"]["datastores"] == {"store": [1], "copy": [1]}
    with open_datastore(store) as opened, serving({"a": opened, "b": opened}) as server:
        assert main(["lookup", f"grpc://{server.listening[0]}/a,b:2", "y-ret"]) == 0
        assert "           3  100.0%  └─ '\\n'  (a 1, b 1)\n" in capsys.readouterr().out
        with pytest.raises(AssertionError, match="can only be searched alone"):
            assert main(["lookup", str(store), "--also", f"grpc://{server.listening[0]}/a", "y"]) == 0, (
                capsys.readouterr().err
            )


def test_without_a_tokenizer_too_the_last_tokens_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: ids used to be shown whole, beside a match of the last ones."""
    make_store(tmp_path / "s", [[[1, 2, 3, 4]]], vocab_size=40).close()
    assert main(["lookup", str(tmp_path / "s"), "--max-match", "2", "--ids", "7", "8", "2", "3"]) == 0
    assert "context       4 tokens: | '2' '3'\n" in capsys.readouterr().out


def test_lines_of_trees_are_cut_to_the_terminal_and_escaped(store: Path) -> None:
    with open_datastore(store) as opened:
        report = make_report(opened, Options(store=str(store), text=" raise"))
    for text in ("x" * 200, "\x1b[31m\u202e" * 20, "日本" * 60):
        report["draft"]["texts"][0] = text
        report["occurrences"][0]["parts"] = ("", "raise", text)
        console = Console(force_terminal=True, width=40, color_system=None, highlight=False)
        lines = shown(report, False, console).splitlines()
        assert "\x1b[31m" not in "".join(lines)
        cut = [line for line in lines if line.endswith("…")]
        assert len(cut) == 3
        assert all(39 <= cell_len(line) <= 40 for line in cut)
        assert "continuations count, share, text" in lines
    narrow = Console(force_terminal=False, width=40, highlight=False)
    assert "日本" * 60 in shown(report, False, narrow)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["grpc://127.0.0.1:1/x", "cat"], "127.0.0.1:1"),
        (["grpc://127.0.0.1:1/x"], "give either a text or --ids"),
        (["/tmp", "x", "--deadline", "1"], "--deadline 1 has an effect only with a draft service; leave it out"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lookup", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
