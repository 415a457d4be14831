"""``suffolk bench batch`` on a tiny model writes a correct report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.building import make_texts
from tests.support.forked import suffolk
from tests.support.measurements import bench, read_report, result_files

pytest.importorskip("matplotlib")


def test_batch_rejects_options_of_decode(model: Path, tmp_path: Path) -> None:
    done = suffolk("bench", "batch", "--model", model, "--prompts", tmp_path, "--record", tmp_path / "r.jsonl")
    assert done.returncode == 2
    assert "unknown option --record" in done.stderr


def test_batch_compares_throughput_at_every_size(folder: Path, model: Path, tmp_path: Path) -> None:
    text = make_texts(1)[0]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"prompt": text[at : at + 60]}) + "\n" for at in (0, 40, 80)))
    path = tmp_path / "batch.json"
    options = [
        "--max-new-tokens",
        "16",
        "--ignore-eos",
        "--batches",
        "1",
        "3",
        "--rounds",
        "2",
        "--drafters",
        "hybrid,useless",
    ]
    command = ["batch", "--model", model, "--datastore", folder / "store", "--prompts", tmp_path / "p.jsonl", *options]
    assert "engine cache" in bench(*command, *result_files(path))
    ties = read_report(path)["results"]["near_ties"]
    assert ties["tokens_compared"] == 12 * 16 * 6 - 12 * 16 // 2  # all but the first run
    assert ties["differences"] == []
    assert ties["largest_gap"] == ties["per_100000_tokens"] == 0
    batches = read_report(path)["results"]["batches"]
    assert {size: each["hybrid"]["requests"] for size, each in batches.items()} == {"1": 12, "3": 12}
    for size, ways in batches.items():
        for each in ways.values():
            assert each["identical"] == each["requests"]
            assert each["tokens_per_second"] > 0
        assert ways["none"]["speed_up"] == 1.0
        # Below 1 if a prompt is read in several passes, because others decode.
        assert 0.9 < ways["none"]["tokens_per_pass"] <= 1.0, size
    done = suffolk("bench", *command[:-2], "--control")
    assert done.returncode == 2
    assert "unknown option --control" in done.stderr
