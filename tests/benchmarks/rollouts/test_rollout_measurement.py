"""Tests the measurement of rollouts on a tiny model: epochs, equal answers, drafts from earlier answers, and the report."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from suffolk.benchmarks.rollouts.answers import AnswerFile
from suffolk.benchmarks.rollouts.memory import Memory, make_memory
from suffolk.cli.main import main
from suffolk.datastore.errors import Corruption, Unsupported
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, save_costs
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, tree_of
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.measurements import read_report, result_files

WORDS = ("--samples", "2", "--max-new-tokens", "20", "--ignore-eos")


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    path.write_text("".join(json.dumps({"id": f"p{place}", "prompt": "x = " * place}) + "\n" for place in (1, 2)))
    return path


def test_every_method_generates_the_same_answers(
    model: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rollouts.json"
    words = ["--model", str(model), "--prompts", str(prompts), *WORDS, "--temperatures", "1", "0.01"]
    assert main(["bench", "rollouts", *words, *result_files(path)]) == 0
    results = read_report(path)["results"]
    assert {(each["epoch"], each["way"]) for each in results["summary"]} == {
        (epoch, way) for epoch in (1, 2) for way in ("none", "prompt-lookup", "prompt trees", "live store", "hybrid")
    }
    for each in results["summary"]:
        assert (each["answers"], each["identical"], each["tokens"]) == (4, 4, 80)
    assert "prompt trees" in capsys.readouterr().out


def drafted(memory: Memory, group: str) -> list[int]:
    """The first drafted path after 1, 2 in a request of ``group``."""
    assert memory.drafter is not None
    request = DraftRequest(1, np.array([1, 2], np.int32), 8, options=DraftOptions(group=group))
    (proposal,) = memory.drafter.propose([request])
    return tree_of(proposal).tokens.tolist()


@pytest.mark.parametrize("method", ["live store", "hybrid"])
def test_a_live_store_drafts_from_an_answer_that_has_ended(method: str, tmp_path: Path) -> None:
    memory = make_memory(method, tmp_path, vocab_size=20)
    memory.learn("p1", [1, 2, 3])
    memory.learn("p1", [1, 2, 3])
    assert drafted(memory, "p1") == drafted(memory, "p2") == [3]
    memory.learn("p2", [1, 2, 4])
    assert drafted(memory, "p2")[0] == 4  # its own group comes first
    assert memory.seconds > 0
    memory.close()


def test_prompt_trees_draft_from_the_last_epoch_of_the_same_prompt(tmp_path: Path) -> None:
    memory = make_memory("prompt trees", tmp_path, vocab_size=20)
    memory.learn("p1", [1, 2, 3])
    assert drafted(memory, "p1") == []
    memory.end_epoch()
    assert drafted(memory, "p1") == [3]
    assert drafted(memory, "p2") == []
    memory.learn("p1", [1, 2, 4])
    memory.end_epoch()
    assert drafted(memory, "p1") == [4]
    memory.close()


def test_another_model_writes_the_first_epoch(model: Path, prompts: Path, tmp_path: Path) -> None:
    path = tmp_path / "rollouts.json"
    words = ["--model", str(model), "--prompts", str(prompts), *WORDS, "--earlier-model", str(model)]
    assert main(["bench", "rollouts", *words, "--methods", "live store", "--json", str(path)]) == 0
    assert {each["epoch"] for each in json.loads(path.read_text())["results"]["summary"]} == {2}


def test_methods_draft_along_kept_answers_in_counted_time(model: Path, prompts: Path, tmp_path: Path) -> None:
    answers, path, costs = tmp_path / "answers.jsonl", tmp_path / "rollouts.json", tmp_path / "costs.json"
    save_costs(
        CostModel([1, 64], [1.0, 1.5]), CostKey.of(Target.load(model)), costs
    )  # drafting takes no time beside these
    words = ["--model", str(model), "--prompts", str(prompts), *WORDS, "--temperatures", "0.01", "0.01"]
    command = ["bench", "rollouts", *words, "--answers", str(answers), "--costs", str(costs), "--json", str(path)]
    assert main(command) == 0
    kept = answers.read_text()
    assert len(kept.splitlines()) == 2 * 2  # epochs, prompts
    assert main(command) == 0
    assert answers.read_text() == kept  # nothing was sampled again
    later = [each for each in json.loads(path.read_text())["results"]["summary"] if each["epoch"] == 2]
    assert all((each["answers"], each["identical"], each["tokens"]) == (4, 4, 80) for each in later)
    found = {each["way"]: each["accepted_tokens"] for each in later}
    assert found["none"] == 0
    assert (
        min(found["prompt trees"], found["live store"], found["hybrid"]) > 20
    )  # nearly greedy epochs repeat each other


def test_a_damaged_answer_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"key": "k", "answers": [[1, 2]]}\n{"key": "k"}\n')
    with pytest.raises(Corruption, match="line 2: 'answers'; delete the file"):
        AnswerFile(path)


@pytest.mark.skipif(importlib.util.find_spec("arctic_inference") is not None, reason="the package is installed")
def test_arctic_needs_its_package(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="method 'arctic' needs the package arctic-inference"):
        make_memory("arctic", tmp_path, vocab_size=20)


def test_arctic_drafts_from_an_answer_that_has_ended(tmp_path: Path) -> None:
    pytest.importorskip("arctic_inference.suffix_decoding")
    memory = make_memory("arctic", tmp_path, vocab_size=20)
    assert memory.drafter is not None
    tokens = np.array([1, 2, 3, 4, 5], np.int32)
    tokens.flags.writeable = False  # as the engine passes them
    assert not len(tree_of(*memory.drafter.propose([DraftRequest(1, tokens[:1], 8, 1)])))
    assert not len(tree_of(*memory.drafter.propose([DraftRequest(1, tokens, 8, 1)])))
    memory.drafter.release(1)
    (proposal,) = memory.drafter.propose([DraftRequest(2, tokens[:3], 8, 1)])
    assert tree_of(proposal).tokens.tolist() == [4, 5]
    memory.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--samples", "0"), "samples is 0; it must be 1 or more"),
        (("--temperatures", "0"), "--temperatures is 0.0; it must be above 0 and at most 2"),
        (("--methods", "magic"), "methods[0] is 'magic'; it must be one of prompt-lookup"),
        (("--methods", "hybrid,hybrid"), "methods hybrid, hybrid: one is named twice"),
    ],
)
def test_bad_settings_are_one_line(
    model: Path, prompts: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fixed = ["--model", str(model), "--prompts", str(prompts), "--json", str(tmp_path / "x.json")]
    assert main(["bench", "rollouts", *fixed, *words]) == 2
    assert message in capsys.readouterr().err
