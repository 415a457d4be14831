"""Tests the sums and the requirements of the run with vLLM."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from research.vllm_drafters.options import NONE, SUFFOLK, VllmOptions
from research.vllm_drafters.requirements import requirements
from research.vllm_drafters.summary import lines, summarize
from suffolk.datastore.errors import InvalidArgument


def run(method: str, seconds: float, accepted: int = 0, drafted: int = 0, **more: Any) -> dict[str, Any]:
    made = {"method": method, "set": "chat", "batch": 1, "texts": 1, "identical": 1, "tokens": 11, "plain_seconds": 2.0}
    counts = {"draft_tokens": drafted, "accepted_tokens": accepted, "service_cpu_seconds": 0.0}
    return made | counts | {"seconds": seconds, "cpu_seconds": seconds, "plain_cpu_seconds": 2.0} | more


def test_rows_are_sums_of_turns() -> None:
    runs = [run(NONE, 2.0), run(SUFFOLK, 1.0, 5, 10), run(NONE, 2.0, set="rag"), run(SUFFOLK, 3.0, set="rag")]
    rows = {(row["set"], row["method"]): row for row in summarize(runs)}
    assert len(rows) == 6
    own = rows["chat", SUFFOLK]
    assert (own["speed_up"], own["tokens_per_second"], own["cpu_share"]) == (2.0, 11.0, 0.5)
    assert (own["tokens_per_pass"], own["drafted_per_pass"]) == (
        2.0,
        2.0,
    )  # 10 tokens behind the first, 5 of them drafted
    assert rows["all", SUFFOLK]["speed_up"] == 1.0
    assert rows["all", NONE]["tokens_per_pass"] == 1.0
    table = lines(summarize(runs))[0]
    assert "50%" in table
    assert "2 of 2" in table


def test_each_method_has_its_arguments() -> None:
    options = VllmOptions("model", (), Path("work"), draft_tokens=6)
    assert "speculative_config" not in options.arguments(NONE, [])
    assert options.arguments("ngram", [])["speculative_config"] == {"method": "ngram", "num_speculative_tokens": 6}
    own = options.arguments(SUFFOLK, ["grpc://a/b"])
    assert own["additional_config"] == {"suffolk": {"datastores": ["grpc://a/b"], "remember": "work/answers-suffolk"}}
    assert own["speculative_config"]["model"] == "suffolk.vllm.Proposer"
    for wrong in ({"methods": ("eagle",)}, {"history": 1.0}, {"max_tokens": 1}):
        with pytest.raises(InvalidArgument):
            VllmOptions("model", (), Path("work"), **wrong)  # type: ignore[arg-type]


def test_a_head_adds_methods() -> None:
    options = VllmOptions(
        "model", (), Path("work"), methods=("eagle", "eagle-suffolk"), head=Path("head"), row_cost=0.05
    )
    speculative = {"method": "eagle", "model": "head", "num_speculative_tokens": 3}
    assert options.arguments("eagle", [])["speculative_config"] == speculative
    both = options.arguments("eagle-suffolk", ["code"])
    assert both["speculative_config"] == {**speculative, "num_speculative_tokens": 8}
    own = {"datastores": ["code"], "remember": "work/answers-eagle-suffolk", "row_cost": 0.05, "neural_tokens": 3}
    assert both["additional_config"] == {"suffolk": own}


def test_the_wheel_is_installed_without_torch(tmp_path: Path) -> None:
    required = ["numpy>=2", "torch==2.13.0+cpu; x == 'y'", "torchvision; x", "tokenizers>=0.2; extra == 'z'", "pillow"]
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        lines = "".join(f"Requires-Dist: {each}\n" for each in required)
        wheel.writestr("a.dist-info/METADATA", f"Name: a\n{lines}\nText of the package\n")
    assert requirements(str(tmp_path / "a.whl")) == ["numpy>=2", "pillow"]
