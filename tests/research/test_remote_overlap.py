"""Tests drafts over a network. Late drafts count as failed, with and without prefetching."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from research import remote_overlap
from research.remote_overlap import RemoteOverlapOptions, measure_remote_overlap
from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import FoundCosts
from tests.support.building import write_jsonl
from tests.support.forked import suffolk
from tests.support.tiny_models import save_tiny

TEXT = "what is said is said again: what is said is said again"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a datastore and a prompt."""
    path = tmp_path_factory.mktemp("asked-ahead")
    save_tiny(path / "model")
    corpus = write_jsonl(path / "corpus.jsonl", [TEXT] * 5)
    done = suffolk("build", "--tokenizer", path / "model", "--output", path / "store", corpus)
    assert done.returncode == 0, done.stderr
    (path / "p.jsonl").write_text(json.dumps({"prompt": TEXT}) + "\n")
    return path


def test_late_drafts_count_as_failed_if_steps_wait_for_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = FoundCosts(CostModel([1, 64], [1.0, 1.0]), "made up")
    monkeypatch.setattr(remote_overlap, "find_costs", lambda *given: costs)
    decoding = DecodingOptions(
        model=str(folder / "model"), prompts=(folder / "p.jsonl",), max_new_tokens=6, ignore_eos=True
    )
    options = RemoteOverlapOptions(folder / "store", decoding, delays_ms=(0.0, 100.0), deadline_ms=50.0)
    found = measure_remote_overlap(options)
    assert found["100 ms"]["waiting"]["counters"]["failed"] > 0
    for ways in found.values():
        assert ways["none"]["counters"] == {}
        assert all(row["identical"] == row["prompts"] == 1 for row in ways.values())
