"""Tests vLLM with Suffolk's proposer, end to end. It is skipped unless 'make vllm' has installed vLLM and the model."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("VLLM_PYTHON", ROOT / ".venv-vllm/bin/python"))
MODEL = Path(os.environ.get("MODEL", ROOT / ".cache/models/smollm2-135m-instruct"))


@pytest.mark.skipif(not PYTHON.is_file(), reason="vLLM is not installed: run 'make vllm' or set VLLM_PYTHON")
@pytest.mark.skipif(not (MODEL / "config.json").is_file(), reason="no model: run 'make vllm' or set MODEL")
@pytest.mark.timeout(900)
def test_texts_are_those_of_vllm_alone(tmp_path: Path) -> None:
    """Texts equal those of vLLM alone, even while the draft service is killed and started again."""
    prompts = [ROOT / "benchmarks/demo/prompts.jsonl", ROOT / "research/vllm_drafters/prompts.jsonl"]
    command = [str(PYTHON), "-m", "research.vllm_drafters", "--model", str(MODEL), "--work", str(tmp_path)]
    command += [
        "--prompts",
        *map(str, prompts),
        "--methods",
        "none",
        "suffolk",
        "suffolk-service",
        "--limit",
        "4",
        "--max-tokens",
        "24",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(command, env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "outage, killed" in done.stdout
