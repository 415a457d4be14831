"""Models with a hub name, without a reachable hub, are loaded from the cache or rejected at once on one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from research import skinny_gemm
from suffolk.cli.main import main
from suffolk.datastore.errors import NotFound
from suffolk.datastore.tokenizer import load_tokenizer
from suffolk.serving.decoding.drafters.neural.eagle.load import load_eagle
from suffolk.serving.decoding.drafters.neural.redrafter.drafter import load_redrafter
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, costs_path
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.target_loader import read_context_length
from tests.support.tiny_models import save_tiny
from tests.support.worker_server import talking_target

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", NOWHERE)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "empty"))


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("name", ["nobody/nothing", "models/misspelt", "nothing"])
def test_a_name_that_the_hub_does_not_give_is_one_line(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--model", name, "x"]) == 2
    error = capfd.readouterr().err
    assert error.startswith(f"suffolk: model {name}: no file or folder of that name, and the hub did not give it (")
    assert error.count("\n") == 1
    with pytest.raises(NotFound, match=f"tokenizer {name}: no file or folder of that name, and the hub did not give"):
        load_tokenizer(name)


@pytest.mark.usefixtures("no_hub")
def test_a_benchmark_of_layers_asks_the_hub_but_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert skinny_gemm.main(["--model", "nothing", "--rounds", "1", "--threads", str(torch.get_num_threads())]) == 2
    error = capfd.readouterr().err
    assert error.startswith("error: model nothing: no file or folder of that name, and the hub did not give it (")
    assert error.count("\n") == 1


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("name", ["./misspelt", "~/misspelt", "/misspelt", "my/models/misspelt"])
def test_a_path_that_does_not_exist_is_not_looked_for_in_the_hub(name: str) -> None:
    for find in (Target.load, read_context_length):
        with pytest.raises(NotFound, match=f"model folder {name} does not exist; name a folder"):
            find(name)


def test_a_path_in_the_home_of_nobody_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    name, target = "~nobody-here/x", talking_target()
    finds: list[Callable[[str], object]] = [
        Target.load,
        read_context_length,
        lambda head: load_redrafter(head, target),
        lambda head: load_eagle(head, target),
    ]
    for find in finds:
        with pytest.raises(NotFound, match="no home folder is known for ~nobody-here; write the whole path"):
            find(name)
    monkeypatch.setenv("XDG_CACHE_HOME", name)
    with pytest.raises(NotFound, match="no home folder is known for ~nobody-here"):
        costs_path(CostKey("model", "float32", 1, "cpu", 1, "2.0", 1))


def test_a_draft_model_that_does_not_exist_is_refused_before_the_model_is_loaded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")  # not a model, so it would be rejected as one
    assert main(["generate", "--model", str(tmp_path), "--draft-model", "./misspelt", "x"]) == 2
    assert capfd.readouterr().err.startswith("suffolk: model folder ./misspelt does not exist")


def test_a_model_in_the_hub_s_cache_needs_no_hub(tmp_path: Path) -> None:
    save_tiny(tmp_path / "models--nobody--tiny" / "snapshots" / "0a1b")
    (refs := tmp_path / "models--nobody--tiny" / "refs").mkdir()
    (refs / "main").write_text("0a1b")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "suffolk",
            "generate",
            "--model",
            "nobody/tiny",
            "--drafter",
            "none",
            "--max-new-tokens",
            "2",
            "abc",
        ],
        env=os.environ | {"HF_ENDPOINT": NOWHERE, "HF_HUB_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Retrying" not in done.stderr
