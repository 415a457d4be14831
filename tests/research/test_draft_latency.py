"""Tests the comparison of draft latency on a tiny datastore, with this checkout twice."""

from __future__ import annotations

import json
from pathlib import Path

from research.draft_latency import main as draft_latency
from tests.support.building import make_texts, write_jsonl, write_tokenizer
from tests.support.forked import suffolk

ROOT = Path(__file__).parents[2]


def test_two_checkouts_give_equal_answers_and_a_row_of_each_part(tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "corpus.jsonl", make_texts(60))
    done = suffolk("build", "--tokenizer", write_tokenizer(tmp_path), "--output", tmp_path / "store", corpus)
    assert done.returncode == 0, done.stderr
    texts, output = write_jsonl(tmp_path / "new.jsonl", make_texts(5, seed=9)), tmp_path / "latency.json"
    words = [str(tmp_path / "store"), "--contexts", str(texts), "--checkouts", str(ROOT), str(ROOT)]
    words += ["--memory", "1", "0.9", "--queries", "30", "--limited-queries", "5", "--rounds", "1"]
    assert draft_latency([*words, "--json", str(output)]) == 0
    rows = json.loads(output.read_text())["results"]["latency"]
    assert [row["part"] for row in rows] == ["lookup", "draft", "both"] * 4
    assert all(0 < row["50"] <= row["99"] <= row["99.9"] for row in rows)
