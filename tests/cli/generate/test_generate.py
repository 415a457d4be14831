"""Tests ``suffolk generate`` on a tiny model: text, report, comparison, and learned calibration."""

from __future__ import annotations

import io
import json
import re
import string
from pathlib import Path
from typing import Any

import pytest

from suffolk.cli.main import main
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.sampling.settings import VERIFICATIONS, SamplingSettings
from suffolk.serving.store.live_store.store import create_live_store
from tests.support.generate_command import PROMPT, generate, store_of


def test_every_drafter_gives_the_same_text(model: str, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = set()
    for drafter in ("none", "datastore", "prompt-lookup", "hybrid"):
        assert (
            generate("--model", model, "--datastore", store, "--drafter", drafter, "--temperature", "0.8", PROMPT) == 0
        )
        captured = capsys.readouterr()
        texts.add(captured.out)
        assert "tokens    24 (length)" in captured.err
        assert "0 failed" in captured.err
        assert "time      draft" in captured.err
    assert len(texts) == 1


def test_all_datastores_are_asked(
    model: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = store_of(tmp_path / "other", fingerprint(load_tokenizer(model)))
    asked: set[Path] = set()
    find_drafts = Datastore.find_drafts

    def watched(self: Datastore, *args: Any, **kwargs: Any) -> list[DraftTree]:
        asked.add(self.path)
        return find_drafts(self, *args, **kwargs)

    monkeypatch.setattr(Datastore, "find_drafts", watched)
    words = ["--model", model, "--datastore", store, "--datastore", other, "--drafter", "datastore", PROMPT]
    assert generate(*words) == 0
    assert "tokens    24 (length)" in capsys.readouterr().err
    assert asked == {Path(store), Path(other)}


def test_documents_that_are_not_published_are_counted(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder = str(tmp_path / "live")
    with create_live_store(folder, model) as live:
        live.append("published")
        live.flush()
        live.append("later", group="a")
        live.append("at last")
    assert generate("--model", model, "--datastore", folder, "--drafter", "datastore", PROMPT) == 0
    [warning] = [record.getMessage() for record in caplog.records if folder in record.getMessage()]
    assert re.fullmatch(
        rf"{folder}: not searched: 2 documents \(\d+ tokens\) in {folder}/live/log; "
        rf"'suffolk serve --live {folder}' serves them too",
        warning,
    )


@pytest.mark.parametrize("drafter", ["early-exit", "draft-model"])
def test_a_network_drafts_to_the_end_with_few_nodes(
    drafter: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    network = ["--set", "exit_layers=1"] if drafter == "early-exit" else ["--draft-model", model]
    assert (
        generate(
            "--model", model, *network, "--drafter", drafter, "--set", "max_nodes=4", "--set", "ignore_eos=true", PROMPT
        )
        == 0
    )
    assert " 0 failed" in capsys.readouterr().err


def test_the_comparison_and_the_json_report(
    model: str, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "stats.json"
    words = ["--model", model, "--datastore", store, "--compare-plain", "--stats-json", str(report), PROMPT]
    assert generate(*words) == 0
    assert "output identical = yes" in capsys.readouterr().err
    stats = json.loads(report.read_text())
    assert stats["plain"]["identical"] is True
    assert stats["tokens"] == len(stats["tokens_generated"]) == 24
    assert stats["drafter"] == "hybrid"
    assert set(stats["seconds"]) == {"prefill", "draft", "wait", "forward", "verify", "compact", "other"}


def test_what_is_learned_is_kept_shown_and_explained(
    model: str, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "calibration.json"
    words = ["--model", model, "--datastore", store, "--set", f"calibration={kept}", PROMPT]
    assert generate(*words) == 0
    text = capsys.readouterr().out
    assert generate("--explain", *words) == 0  # starts with the learned calibration
    captured = capsys.readouterr()
    assert captured.out == text
    assert re.search(r"all drafts +\d+ +\d+ +\d+ +\S+ +\d+% *\n", captured.err)
    assert main(["calibration", str(kept)]) == 0
    shown = capsys.readouterr().out
    assert "prompt-lookup:" in shown
    assert main(["calibration", str(kept), "--json"]) == 0
    facts = {each["source"]: each for each in json.loads(capsys.readouterr().out)}
    assert facts["prompt-lookup"]["predictions"] > 0


def test_the_prompt_can_come_from_stdin(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(PROMPT))
    assert generate("--model", model) == 0
    from_stdin = capsys.readouterr().out
    assert generate("--model", model, PROMPT) == 0
    assert capsys.readouterr().out == from_stdin


def test_colours_change_nothing_but_colours(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("--model", model, "--set", "colour=never", PROMPT) == 0
    plain = capsys.readouterr()
    assert "\x1b" not in plain.out + plain.err
    assert generate("--model", model, "--set", "colour=always", PROMPT) == 0
    coloured = capsys.readouterr()
    assert coloured.err.startswith("colours   ")
    stripped = coloured.out
    for code in ("\x1b[38;5;208m", "\x1b[0m"):
        stripped = stripped.replace(code, "")
    assert stripped == plain.out


def test_a_stop_string_ends_the_text_before_it(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    generate("--model", model, PROMPT)
    text = capsys.readouterr().out.rstrip("\n")
    stop = text[4:6]
    assert generate("--model", model, "--stop", stop, PROMPT) == 0
    captured = capsys.readouterr()
    assert captured.out.rstrip("\n") == text[: text.index(stop)].rstrip("\n")
    assert "(stop)" in captured.err


def test_penalties_bad_words_and_logprobs(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "stats.json"
    assert generate("--model", model, "--set", "logprobs=2", "--stats-json", str(report), PROMPT) == 0
    plain = json.loads(report.read_text())
    assert [each["token"] for each in plain["logprobs"]] == plain["tokens_generated"]
    for each in plain["logprobs"]:
        (likeliest, value), _ = each["alternatives"]
        assert (each["token"], each["value"]) == (likeliest, value)  # greedy
        assert value <= 0
    tokenizer = load_tokenizer(model)
    ids = {letter: tokenizer.encode(letter).ids[0] for letter in string.ascii_letters}
    letters = [letter for token in plain["tokens_generated"] for letter in ids if ids[letter] == token]
    for words in (
        ["--set", "repetition_penalty=1.5"],
        ["--set", "presence_penalty=2"],
        ["--set", "frequency_penalty=2"],
        ["--temperature", "1", "--set", "min_p=0.9"],
        ["--set", f"bad_words={letters[0]}", "--set", f"bad_words={letters[-1]}"],
    ):
        drafted = generate("--model", model, "--compare-plain", "--stats-json", str(report), *words, PROMPT)
        assert drafted == 0
        changed = json.loads(report.read_text())
        assert changed["plain"]["identical"] is True
        if "bad_words" in words[1]:
            assert not {ids[letters[0]], ids[letters[-1]]} & set(changed["tokens_generated"])
        elif words[0] != "--temperature":
            assert changed["tokens_generated"] != plain["tokens_generated"]
    capsys.readouterr()


def test_verifications(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[SamplingSettings] = []
    start = Engine.generate

    def spy(engine: Engine, prompt: list[int], settings: SamplingSettings, *more: Any) -> Generation:
        asked.append(settings)
        return start(engine, prompt, settings, *more)

    monkeypatch.setattr(Engine, "generate", spy)
    report = tmp_path / "stats.json"
    words = ["--model", model, "--temperature", "1.5", "--stats-json", str(report), PROMPT]
    tokens = {}
    for name in VERIFICATIONS:
        thresholds = ["--set", "epsilon=0.2", "--set", "delta=0.1"] if name == "typical" else []
        assert generate("--set", f"verification={name}", *thresholds, *words) == 0
        found = json.loads(report.read_text())
        assert found["verification"] == asked[-1].verification == name
        tokens[name] = found["tokens_generated"]
    assert (asked[-1].epsilon, asked[-1].delta) == (0.2, 0.1)
    assert (
        tokens["match"] == tokens["rejection"]
    )  # they differ only for drafters that sample chains, which this one does not
    assert capsys.readouterr().err.count("lossy     typical acceptance") == 1
    assert main(["config", "show", "generate"]) == 0
    assert "'typical': LOSSY" in " ".join(capsys.readouterr().out.split())


def test_characters_that_stdout_does_not_know_are_escaped(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: these characters used to end the text early, with a traceback."""
    words = ["--model", model, "--temperature", "2", "--max-new-tokens", "200", PROMPT]
    shown = {}
    for encoding in ("ascii", "utf-8"):
        stdout = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr("sys.stdout", stdout)
        assert generate(*words) == 0
        shown[encoding] = stdout.buffer.getvalue()  # type: ignore[attr-defined]
    assert shown["ascii"] == shown["utf-8"].decode().encode("ascii", "backslashreplace") != shown["utf-8"]
