"""Drafts from behind a network: what comes too late is counted, however it is asked for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from suffolk.benchmarks import remote_overlap
from suffolk.benchmarks.decoding_options import DecodingOptions
from suffolk.benchmarks.draft_server import served
from suffolk.benchmarks.remote_overlap import AskedAheadOptions, measure_asked_ahead
from suffolk.datastore.errors import Unavailable
from suffolk.serving.engine.policy.cost_model import CostModel
from suffolk.serving.engine.policy.cost_store import FoundCosts
from tests.support.building import suffolk, write_jsonl
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


def test_drafts_that_are_too_late_are_missed_by_those_who_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = FoundCosts(CostModel([1, 64], [1.0, 1.0]), "made up", 0)
    monkeypatch.setattr(remote_overlap, "find_costs", lambda *given: costs)
    decoding = DecodingOptions(str(folder / "model"), (folder / "p.jsonl",), max_new_tokens=12, ignore_eos=True)
    options = AskedAheadOptions(folder / "store", decoding, delays_ms=(0.0, 400.0), deadline_ms=200.0)
    found = measure_asked_ahead(options)
    assert found["400 ms"]["waiting"]["counters"]["missed"] > 0
    for ways in found.values():
        assert ways["none"]["counters"] == {}
        assert all(row["identical"] == row["prompts"] == 1 for row in ways.values())


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="did not start: .*no-store"), served(tmp_path / "no-store"):
        pass


def test_a_server_that_lives_on_but_says_something_else_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tmp_path / "server"
    server.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\necho why not >&2\necho hello\nexec sleep 600\n")
    server.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(server))
    with pytest.raises(Unavailable, match="did not start: hello\nwhy not"), served(tmp_path / "store"):
        pass
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
