"""Tests the overlap of prompts and answers with a datastore."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from research.overlap import WINDOW, flagged, measure_overlap, overlap, summary, texts_of
from research.overlap import main as overlap_command
from suffolk.benchmarks.prompts import load_prompts
from suffolk.datastore.errors import InvalidArgument
from tests.support.json_lines import write_rows
from tests.support.stores import make_store

TEXT = list(range(100, 180))


def test_an_overlap_is_found_with_its_length_and_place(tmp_path: Path) -> None:
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


def test_missing_prompts_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path / "store", [[TEXT]], vocab_size=999).close()
    empty, tokenizer = tmp_path / "empty.jsonl", tmp_path / "tokenizer.json"
    empty.write_text("\n")
    Tokenizer(WordLevel({"w": 0}, unk_token="w")).save(str(tokenizer))
    words = ["--prompts", str(empty), "--datastore", str(tmp_path / "store"), "--tokenizer", str(tokenizer)]
    assert overlap_command(words) == 2
    assert capsys.readouterr().err == f"error: no prompts in {empty}; give .jsonl files with one object a line\n"


def test_answers_in_a_row_are_checked_too() -> None:
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
    write_rows(tmp_path / "p.jsonl", rows)
    with make_store(tmp_path / "store", [[list(range(10, 50))]], vocab_size=50) as store:
        found = measure_overlap(store, tokenizer, [tmp_path])
    assert [(each.name, each.group, each.share) for each in found] == [
        ("leak", "s", 1.0), ("p.jsonl:2", "p", 0.0), ("task/3", "p", 0.0),
    ]  # fmt: skip
    assert [prompt.name for prompt in load_prompts([tmp_path], "both", None, 0)] == [each.name for each in found]


def test_messages_without_content_are_named(tmp_path: Path) -> None:
    write_rows(tmp_path / "p.jsonl", [{"text": "a"}, {"messages": ["x"]}])
    with (
        make_store(tmp_path / "store", [[[1]]], vocab_size=50) as store,
        pytest.raises(InvalidArgument, match=r"p\.jsonl line 2: 'messages' must be a list"),
    ):
        measure_overlap(store, Tokenizer(WordLevel({"a": 0}, "a")), [tmp_path])
