"""Prompts that numbers are fitted to, and prompts that stand in a datastore."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from suffolk.benchmarks.library_functions import library_functions
from suffolk.benchmarks.overlap import WINDOW, flagged, measure_overlap, overlap, summary, texts_of
from suffolk.benchmarks.overlap import main as overlap_command
from suffolk.benchmarks.prompts import load_prompts, read_excluded, require_named
from suffolk.benchmarks.tuning_prompts import tuning_rows, write_rows
from suffolk.benchmarks.unrelated_corpus import documents
from suffolk.datastore.errors import InvalidArgument, NotFound
from tests.support.stores import make_store

TEXT = list(range(100, 180))


def test_a_leak_is_found_whole_and_at_its_place(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", [[[1, 2, *TEXT, 3]]], vocab_size=999) as store:
        own = [500, 501, *TEXT[10:40], 502, *TEXT[50:60]]
        found = overlap(store, own, "x", "set")
        assert (found.longest, found.at, found.tokens) == (30, 2, len(own))
        assert (found.windows, found.found) == (len(own) - WINDOW + 1, 30 - WINDOW + 1)
        assert overlap(store, TEXT).share == 1.0
        clean = overlap(store, [900] * 40)
        assert (clean.share, clean.longest) == (0.0, 0)
        short = overlap(store, [1, 2])
        assert (short.windows, short.share, short.longest) == (0, 0.0, 2)
        assert overlap(store, []).longest == 0
    assert flagged([found, clean], 0.5, 30) == [found]
    assert flagged([found, clean], 0.2, 99) == [found]
    assert flagged([found, clean], 0.9, 31) == []
    [row] = summary([found, found], [found])
    assert row == ["set, prompt", 2, 2 * found.windows, pytest.approx(found.share), 30, 1]


def test_no_prompts_are_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path / "store", [[TEXT]], vocab_size=999).close()
    empty, tokenizer = tmp_path / "empty.jsonl", tmp_path / "tokenizer.json"
    empty.write_text("\n")
    Tokenizer(WordLevel({"w": 0}, unk_token="w")).save(str(tokenizer))
    words = ["--prompts", str(empty), "--datastore", str(tmp_path / "store"), "--tokenizer", str(tokenizer)]
    assert overlap_command(words) == 2
    assert capsys.readouterr().err == f"error: no prompts in {empty}; give .jsonl files with one object a line\n"


def test_answers_are_texts_of_a_prompt() -> None:
    row = {"messages": [{"role": "user", "content": "a"}], "prefill": "b", "canonical_solution": "c", "answer": ""}
    assert texts_of(row) == {"prompt": "a", "prefill": "b", "canonical_solution": "c"}
    assert texts_of({"text": "t"}) == {"prompt": "t"}


def test_rows_are_measured_by_their_ids(tmp_path: Path) -> None:
    words = {f"w{number}": number for number in range(50)}
    tokenizer = Tokenizer.from_str(
        json.dumps(
            {
                "version": "1.0",
                "added_tokens": [],
                "pre_tokenizer": {"type": "WhitespaceSplit"},
                "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
            }
        )
    )
    leak = {"id": "leak", "task_id": "t", "set": "s", "prompt": " ".join(f"w{n}" for n in range(20, 40))}
    rows = [leak, {"text": "w1 w2"}, {"task_id": "task/3", "text": "w3"}]
    write_rows(rows, tmp_path / "p.jsonl")
    with make_store(tmp_path / "store", [[list(range(10, 50))]], vocab_size=50) as store:
        found = measure_overlap(store, tokenizer, [tmp_path])
    assert [(each.name, each.group, each.share) for each in found] == [
        ("leak", "s", 1.0), ("p.jsonl:2", "p", 0.0), ("task/3", "p", 0.0),
    ]  # fmt: skip
    assert [prompt.name for prompt in load_prompts([tmp_path], "both", None, 0)] == [each.name for each in found]


@pytest.mark.parametrize("message", [{"role": "user"}, "x", 3])
def test_messages_without_content_are_named(tmp_path: Path, message: object) -> None:
    write_rows([{"text": "a"}, {"messages": [message]}], tmp_path / "p.jsonl")
    with pytest.raises(InvalidArgument, match=r"p\.jsonl line 2: 'messages' must be a list"):
        load_prompts([tmp_path], "both", None, 0)
    with (
        make_store(tmp_path / "store", [[[1]]], vocab_size=50) as store,
        pytest.raises(InvalidArgument, match=r"p\.jsonl line 2: 'messages' must be a list"),
    ):
        measure_overlap(store, Tokenizer(WordLevel({"a": 0}, "a")), [tmp_path])


def test_rows_that_are_no_objects_are_named(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text("[1]\n")
    with pytest.raises(InvalidArgument, match=r"p\.jsonl line 1: it is no object"):
        load_prompts([tmp_path], "both", None, 0)


def test_exclusions_that_are_no_prompts_are_refused(tmp_path: Path) -> None:
    write_rows([{"id": "one", "text": "a"}, {"text": "b"}], tmp_path / "p.jsonl")
    require_named(frozenset(), [tmp_path])
    require_named(frozenset({"one", "p.jsonl:2"}), [tmp_path])
    with pytest.raises(InvalidArgument, match="2 of 3 names are of no prompt, 'p.jsonl:9' is one"):
        require_named(frozenset({"one", "two", "p.jsonl:9"}), [tmp_path])


def test_exclusions_are_names_a_line(tmp_path: Path) -> None:
    (tmp_path / "drop.txt").write_text("a/1\nb 2\n")
    assert read_excluded(tmp_path / "drop.txt") == {"a/1", "b 2"}
    with pytest.raises(NotFound, match="a prompt's id a line"):
        read_excluded(tmp_path / "none.txt")


def test_tuning_prompts_are_the_same_each_time_and_load_as_prompts(tmp_path: Path) -> None:
    rows = tuning_rows()
    assert rows == tuning_rows()
    assert {name: len(each) for name, each in rows.items()} == {"coding": 76, "chat": 24, "reasoning": 24}
    names = [row["id"] for each in rows.values() for row in each]
    assert len(set(names)) == len(names)
    for name, each in rows.items():
        write_rows(each, tmp_path / f"{name}.jsonl")
    prompts = load_prompts([tmp_path], "both", None, 0)
    assert sum(bool(prompt.text) for prompt in prompts) == 28
    assert all(prompt.messages for prompt in prompts)
    assert {prompt.group for prompt in prompts} == {"coding", "coding, chat", "coding, prefill", "chat", "reasoning"}


def test_library_functions_have_other_names_and_still_compile() -> None:
    functions = {f"{each.module}.{each.name}": each for each in library_functions()}
    assert len(functions) > 120
    for function in functions.values():
        compile(function.code, function.name, "exec")
        compile(function.head, function.name, "exec")
    heading = functions["textwrap.indent"].head.splitlines()[0]
    assert heading.startswith("def indent(")
    assert "predicate" not in heading


def test_unrelated_texts_are_as_long_as_asked_and_depend_on_the_seed() -> None:
    texts = list(documents(20_000, 0))
    assert 20_000 <= sum(map(len, texts)) < 30_000
    assert texts == list(documents(20_000, 0)) != list(documents(20_000, 1))


def test_what_is_no_text_is_refused_with_its_line(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.jsonl"
    rubbish.write_bytes(b'{"prompt": "a"}\n\xff\xfe\x00')
    with pytest.raises(InvalidArgument, match="line 2: byte 0xff is no UTF-8"):
        load_prompts([rubbish], "both", None, 0)
    with pytest.raises(InvalidArgument, match="line 2: byte 0xff is no UTF-8"):
        read_excluded(rubbish)


def test_prompts_of_both_styles(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "question"}]
    write_rows([{"id": "x", "set": "code", "messages": messages, "prefill": "def f("}], tmp_path / "b.jsonl")
    write_rows([{"prompt": "once"}, {"text": "upon"}], tmp_path / "a.jsonl")
    found = load_prompts([tmp_path], "both", None, 0)
    assert [(each.name, each.group, each.text) for each in found] == [
        ("a.jsonl:1", "a", "once"),
        ("a.jsonl:2", "a", "upon"),
        ("x", "code, chat", ""),
        ("x", "code, prefill", "def f("),
    ]
    assert [each.group for each in load_prompts([tmp_path / "b.jsonl"], "prefill", None, 0)] == ["code, prefill"]


def test_prompt_limit_picks_by_seed_and_keeps_the_order(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_rows([{"prompt": str(number)} for number in range(50)], path)
    texts = [[int(each.text) for each in load_prompts([path], "chat", 5, seed)] for seed in (0, 0, 1)]
    assert texts[0] == texts[1] == sorted(texts[0])
    assert texts[0] != texts[2]
    assert len(set(texts[0])) == 5


def test_bad_prompts_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no .jsonl file"):
        load_prompts([tmp_path], "chat", None, 0)
    with pytest.raises(NotFound, match="missing.jsonl"):
        load_prompts([tmp_path / "missing.jsonl"], "chat", None, 0)
    write_rows([{"question": "x"}], tmp_path / "a.jsonl")
    with pytest.raises(InvalidArgument, match="line 1: no 'messages' and no 'prompt'"):
        load_prompts([tmp_path / "a.jsonl"], "chat", None, 0)
    (tmp_path / "b.jsonl").write_text("\n{oops\n")
    with pytest.raises(InvalidArgument, match="b.jsonl line 2"):
        load_prompts([tmp_path / "b.jsonl"], "chat", None, 0)
