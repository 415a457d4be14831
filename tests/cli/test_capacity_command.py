"""``suffolk capacity``, and the file that ``suffolk profile --datastore`` makes for it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from suffolk.benchmarks.capacity.profile import CONTEXTS, measure_service_costs, sample_contexts
from suffolk.capacity.service_costs import FORMAT, PUBLISHED, read_costs, write_costs
from suffolk.cli.main import main
from tests.support.stores import make_store

WORDS = ["capacity", "--tokens", "100G", "--workers", "50", "--steps-per-second", "20", "--batch", "8"]


def test_a_plan_as_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(WORDS) == 0
    text = capsys.readouterr().out
    assert PUBLISHED.machine in text
    assert "limit     latency" in text
    assert main([*WORDS, "--price-node-hour", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert f"plan      {found['nodes']} nodes" in text
    assert found["month"]["price"] == pytest.approx(2 * 730 * found["nodes"])
    assert max(found["limits"].values()) == found["limits"]["latency"]


def test_a_config_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "capacity.toml"
    config.write_text('tokens = "100G"\nworkers = 50\nsteps_per_second = 20\nbatch = 8\nnode_memory = "1T"\n')
    assert main(["capacity", "--config", str(config), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["need"]["tokens"] == 10**11
    assert found["need"]["node"]["memory"] == 10**12


def test_a_simulated_plan(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("simpy")
    words = [
        "capacity",
        "--tokens",
        "1G",
        "--workers",
        "20",
        "--steps-per-second",
        "40",
        "--batch",
        "4",
        "--node-cores",
        "1",
    ]
    assert main([*words, "--simulate"]) == 0
    shown = capsys.readouterr().out
    assert "1 of each shard down" in shown
    assert "simulation" in shown


def test_what_is_profiled_is_planned_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = np.random.default_rng(0).integers(0, 40, (60, 200)).tolist()
    make_store(tmp_path / "store", [documents[:30], documents[30:]], vocab_size=40).close()
    costs = measure_service_costs(tmp_path / "store", seconds=0.2)
    assert costs.server_call_s > 0
    assert costs.client_call_s > 0
    assert costs.reply_context_bytes > costs.request_context_bytes > 50
    write_costs(costs, tmp_path / "costs.json")
    assert read_costs(tmp_path / "costs.json") == costs
    assert main([*WORDS, "--latency-ms", "1000", "--profile", str(tmp_path / "costs.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["costs"] == asdict(costs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": FORMAT + 1}, "its format is 2, not 1; 'suffolk profile --datastore STORE' makes such a file"),
        ({"segment_s": 0}, "segment_s is 0"),
        ({"surprise": 1}, "unknown key 'surprise'"),
    ],
)
def test_other_profiles_are_refused(
    changes: dict[str, object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({"format": FORMAT} | asdict(PUBLISHED) | changes))
    assert main([*WORDS, "--profile", str(file)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tokens", "0"], "--tokens is 0; it must be between 1 and"),
        (["--tokens", "many"], "--tokens is 'many'; it must be a size such as 500M"),
        (["--tokens", "1.5"], "--tokens is '1.5'; it must be a size such as 500M"),
        (["--workers", "-3"], "--workers is -3"),
        (["--steps-per-second", "0"], "--steps-per-second is 0.0; it must be above 0"),
        (["--price-node-hour", "inf"], "--price-node-hour is inf; it must be between 0 and"),
        (["--batch", "1000"], "--batch is 1000; it must be"),
        (["--utilisation", "0.95"], "--utilisation is 0.95; it must be"),
        (["--latency-ms", "1"], "--latency-ms: 99 % of the steps must have their drafts within 1 ms"),
        (["--tokens", "1P"], "the datastore takes"),
        (["--profile", "nowhere.json"], "nowhere.json: cannot be read"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_profile_is_of_a_model_or_of_a_datastore(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile"]) == 2
    assert "profile needs --model MODEL or --datastore STORE" in capsys.readouterr().err
    assert main(["profile", "--model", "m", "--datastore", "s"]) == 2
    assert "are both given" in capsys.readouterr().err


def test_a_profile_samples_as_many_contexts_as_it_says(tmp_path: Path) -> None:
    """Regression: another constant of the same name left 200 of the 512 contexts."""
    documents = [np.random.default_rng(seed).integers(0, 50, 400).tolist() for seed in range(20)]
    with make_store(tmp_path / "store", [documents], vocab_size=50) as store:
        assert len(sample_contexts(store)) == CONTEXTS == 512
