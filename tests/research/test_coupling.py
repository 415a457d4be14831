"""The study counts how often the target's token is among the drafter's top tokens under the same noise.

Its counts equal a direct computation.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from research import coupling
from research.coupling import CHILDREN, compare, statement
from research.coupling_pairs import CouplingOptions, logits_by_context
from suffolk.serving.decoding.engine.sampling.seeded_noise import SeededNoise
from tests.support.tiny_models import save_tiny


def test_coupling_compares_by_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    target, drafter = torch.randn(2, 12, generator=generator, dtype=torch.float64)
    noise = SeededNoise(0, 12, torch.device("cpu")).rows(0, 50)
    law, drafted = target.softmax(-1), drafter.softmax(-1)
    expected = [1 - float((law - drafted).abs().sum() / 2)]
    expected += [float(law[drafter.topk(size).indices].sum()) for size in CHILDREN]
    for size in CHILDREN:
        children = (drafted.log() + noise).topk(size).indices.tolist()
        drawn = (law.log() + noise).argmax(-1).tolist()
        expected.append(sum(token in each for token, each in zip(drawn, children, strict=True)) / 50)
    assert compare(target, drafter, noise).tolist() == pytest.approx(expected)


def test_coupling_writes_its_files_and_reports_losses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "coupling.json"
    command = ["--contexts", "3", "--draws", "4", "--vocab", "9", "--seed", "2", "--json", str(path)]
    assert coupling.main(command) == 0
    results = json.loads(path.read_text())["results"]
    assert len(results["drafters"]) == 4
    assert all(each["contexts"] == 3 for found in results["drafters"].values() for each in found.values())
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "coupled compared to top-k in 64 cells" in capsys.readouterr().out
    cell = {"top": 0.5, "coupled": 0.4, "difference": -0.1, "half_width_95": 0.02}
    found = {"children": [1], "drafters": {"x": {"0.3": {"one_minus_tv": 0.5, "children": {"1": cell}}}}}
    assert statement(found)[1] == "less: x, T=0.3, k=1 (-0.100±0.020)"
    assert coupling.main(["--drafter", "small"]) == 2
    assert "a model needs prompts" in capsys.readouterr().err


def test_coupling_of_a_model_with_noisy_copies_of_itself(tmp_path: Path) -> None:
    model, prompts = save_tiny(tmp_path / "model"), tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "some text to read"}\n')
    options = CouplingOptions(contexts=4, draws=2, model=str(model), prompts=(prompts,))
    pairs = list(logits_by_context(options))
    assert [len(target) for target, _ in pairs] == [257] * 4
    real = list(logits_by_context(replace(options, drafter=str(model))))
    for target, drafters in real:
        assert [torch.equal(target, each) for each in drafters.values()] == [True]
