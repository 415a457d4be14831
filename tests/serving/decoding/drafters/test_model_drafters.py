"""Tests neural drafters in commands: unchanged output, correct reports, and errors on one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from suffolk.cli.main import main
from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig
from suffolk.serving.decoding.drafters.hierarchy.drafter import HierarchyDrafter
from suffolk.serving.decoding.drafters.load import load_drafters
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import DraftModelDrafter, load_draft_model
from suffolk.serving.decoding.drafters.neural.eagle.drafter import EagleDrafter
from suffolk.serving.decoding.drafters.neural.eagle.training import new_head as eagle_head
from suffolk.serving.decoding.drafters.neural.early_exit.drafter import EarlyExitDrafter
from suffolk.serving.decoding.drafters.neural.early_exit.model import shallow
from suffolk.serving.decoding.drafters.neural.early_exit.training import new_head
from suffolk.serving.decoding.drafters.neural.redrafter.config import RedrafterConfig
from suffolk.serving.decoding.drafters.neural.redrafter.drafter import RedrafterDrafter
from suffolk.serving.decoding.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.decoding.drafters.registry import BUILT_IN
from suffolk.serving.decoding.drafters.retrieval.token_recycling import TokenRecyclingDrafter
from suffolk.serving.decoding.engine.costs.cost_measurement import measure
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, costs_path, save_costs
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import save_tiny, tiny_model

PROMPT = "abcabcabcabc"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A target, a smaller model with its tokenizer, and a head. Pass costs are measured once and stored."""
    base = tmp_path_factory.mktemp("models")
    model, small = save_tiny(base / "target"), save_tiny(base / "small", num_hidden_layers=1)
    (head := base / "head").mkdir()
    target = Target.load(str(model))
    new_head(target, 1, 8).save(head)
    (redrafter := base / "redrafter").mkdir()
    RedrafterHead(RedrafterConfig(257, 16, 32), Target.wrap(tiny_model(vocab_size=257, hidden_size=16))).save(redrafter)
    (eagle := base / "eagle").mkdir()
    eagle_head(Target.wrap(tiny_model(vocab_size=257, hidden_size=16))).save(eagle)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for each in (target, shallow(target, 1), Target.load(str(small))):
            path = costs_path(key := CostKey.of(each))
            path.parent.mkdir(parents=True, exist_ok=True)
            save_costs(measure(each, 1), key, path)
        yield {
            "model": str(model),
            "small": str(small),
            "head": str(head),
            "redrafter": str(redrafter),
            "eagle": str(eagle),
        }


def generate(*words: str) -> int:
    return main(["generate", "--max-new-tokens", "24", "--temperature", "0.8", *words])


def test_every_network_gives_the_same_text(
    folders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, ways = set(), {
        "none": ["--drafter", "none"],
        "draft-model": ["--draft-model", folders["small"], "--drafter", "draft-model"],
        "early-exit": ["--set", "exit_layers=1", "--drafter", "early-exit"],
        "head": ["--head", folders["head"], "--drafter", "early-exit"],
        "hybrid": ["--head", folders["head"], "--draft-model", folders["small"]],
        "hierarchy": ["--draft-model", folders["small"], "--levels", "prompt-lookup:3 > exit-1:2 > draft-model@0.3:4 > target"],
    }  # fmt: skip
    for name, words in ways.items():
        report = tmp_path / f"{name}.json"
        assert generate("--model", folders["model"], *words, "--stats-json", str(report), PROMPT) == 0
        captured = capsys.readouterr()
        texts.add(captured.out)
        assert json.loads(report.read_text())["drafter"] == ("early-exit" if name == "head" else name)
        assert "0 failed" in captured.err
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--drafter", "draft-model"], "--drafter draft-model needs --draft-model MODEL; add it"),
        (
            ["--drafter", "early-exit"],
            "--drafter early-exit needs --set exit_layers=N or --head FOLDER; add it",
        ),
        (
            ["--drafter", "prompt-lookup", "--set", "exit_layers=1"],
            "does not use the options of early-exit that are given",
        ),
        (
            ["--set", "exit_layers=1", "--draft-model", "{small}", "--drafter", "early-exit"],
            "drafter early-exit does not use the options of draft-model that are given; leave one of them out",
        ),
        (["--set", "exit_layers=1", "--head", "{head}"], "two drafters are early-exit; leave one of them out"),
        (
            ["--set", "exit_layers=2"],
            "suffolk: exit_layers is 2; it must be 1 or more, and fewer than the 2 of the model",
        ),
        (["--drafter", "hierarchy"], "--drafter hierarchy needs --levels LEVELS; add it"),
        (["--levels", "draft-model:4"], "level draft-model needs a model (on the command line: --draft-model MODEL)"),
        (
            ["--levels", "exit-2:4"],
            "layers of level exit-2 is 2; it must be 1 or more, and fewer than the 2 of the model",
        ),
        (["--levels", "exit-1"], "levels: 'exit-1' is not a level; write NAME:TOKENS"),
        (["--levels", "datastore:4"], "level datastore needs a datastore (on the command line: --datastore STORE)"),
        (["--levels", "exit-1:2 > prompt-lookup:2"], "retrieval can only be the bottom level"),
        (
            ["--head", "/nowhere"],
            "/nowhere/config.json: cannot be read (No such file or directory); name a trained head",
        ),
        (["--head", "{small}"], "suffolk: head {small}: it is a language model and no head; --draft-model takes it"),
        (["--head", "{redrafter}"], "suffolk: head {redrafter}: the head's hidden size is 16, but the embedding of"),
        (["--head", "{eagle}"], "suffolk: head {eagle}: it has hidden states of 16 and 257 tokens, the target"),
        (["--draft-model", "/nowhere"], "model folder /nowhere does not exist"),
    ],
)
def test_what_does_not_fit_is_one_line(
    folders: dict[str, str], words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate("--model", folders["model"], *(word.format(**folders) for word in words), PROMPT) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message.format(**folders) in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("option", ["--model", "--head", "--draft-model", "--datastore"])
@pytest.mark.parametrize("command", [["generate"], ["worker"], ["bench", "decode", "--prompts", "x"]])
def test_names_that_are_empty_are_refused(command: list[str], option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, option, ""]) == 2
    error = capsys.readouterr().err
    assert f"{option}: it is empty; give " in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", [["generate"], ["worker"], ["bench", "decode"], ["bench", "batch"]])
def test_help_shows_how_networks_draft(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    examples = capsys.readouterr().out.partition("examples:")[2]
    for option in ("--head HEAD_FOLDER", "--draft-model SMALLER_MODEL_FOLDER"):
        assert f"suffolk {' '.join(command)} --model MODEL_FOLDER {option}" in examples


def test_a_worker_has_its_own_drafters(folders: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("--worker", "grpc://127.0.0.1:1", "--draft-model", folders["small"], PROMPT) == 2
    assert (
        "--draft-model cannot be given with --worker, which has its own model and drafters" in capsys.readouterr().err
    )
    assert main(["worker", "--model", folders["model"], "--drafter", "draft-model"]) == 2
    assert "--drafter draft-model needs something to draft from; add --draft-model MODEL" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["redrafter", "eagle"])
def test_compiled_passes_and_what_they_cannot_do_are_refused_before_a_model_is_loaded(
    folders: dict[str, str], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["worker", "--model", "/nowhere", "--set", "pass_mode=compiled", "--head", folders[kind]]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        f"suffolk: pass_mode compiled: its passes give no hidden states, which drafter {kind} reads; leave it"
    )
    assert error.count("\n") == 1


def test_no_exit_layers_are_refused_and_not_overlooked(
    folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: exit_layers of 0 used to count as not given, and was ignored."""
    assert generate("--model", folders["model"], "--set", "exit_layers=0", PROMPT) == 2
    assert "exit_layers is 0" in capsys.readouterr().err
    assert generate("--worker", "grpc://127.0.0.1:1", "--set", "exit_layers=0", PROMPT) == 2
    assert "has its own model and drafters" in capsys.readouterr().err


def test_drafters_that_read_hidden_states_are_known_by_name() -> None:
    networks = (DraftModelDrafter, EarlyExitDrafter, RedrafterDrafter, EagleDrafter, HierarchyDrafter)
    classes = (*networks, TokenRecyclingDrafter)
    assert {each.name for each in classes} == {entry.name for entry in BUILT_IN.values() if entry.needs_option}
    readers = {entry.name for entry in BUILT_IN.values() if entry.reads_states}
    assert {each.name for each in classes if hasattr(each, "follow")} == readers
    assert {each.name for each in networks} == {entry.name for entry in BUILT_IN.values() if entry.is_neural}


@pytest.mark.parametrize("words", [["--set", "exit_layers=2"], ["--draft-model", "/nowhere"]])
def test_networks_that_cannot_be_had_are_refused_before_passes_are_compiled(
    folders: dict[str, str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["worker", "--model", folders["model"], "--slots", "1", "--set", "pass_mode=compiled", *words]) == 2
    assert "compiling" not in capsys.readouterr().err


def test_a_draft_model_with_another_tokenizer_is_refused(folders: dict[str, str]) -> None:
    target, other = Target.load(folders["model"]), Target.load(folders["model"])
    other.tokenizer.add_tokens(["another"])
    with pytest.raises(
        Unsupported, match="token 'another' is 257 here and missing there|'another' is missing there and 257 here"
    ):
        load_draft_model(folders["small"], other)
    assert load_draft_model(folders["small"], target).name == "draft-model"


def test_models_are_loaded_for_an_engine(folders: dict[str, str]) -> None:
    target = Target.load(folders["model"])
    sources = DrafterConfig(draft_model=folders["small"], exit_layers=1)
    assert [each.name for each in load_drafters(target, sources, 2, 200)] == ["draft-model", "early-exit"]
    with pytest.raises(InvalidArgument, match="two drafters are early-exit"):
        load_drafters(target, DrafterConfig(head=[folders["head"]], exit_layers=1))


def test_a_measurement_with_a_head_is_written(
    folders: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: the folder of a head in the options used to cause a traceback at the end of a run."""
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "abcabc"}\n')
    words = ["--model", folders["model"], "--prompts", str(tmp_path / "prompts.jsonl"), "--head", folders["head"]]
    words += ["--drafters", "early-exit", "--max-new-tokens", "4", "--json", str(tmp_path / "decode.json")]
    assert main(["bench", "decode", *words]) == 0
    assert json.loads((tmp_path / "decode.json").read_text())["settings"]["models"]["options"]["head"] == [
        folders["head"]
    ]
    assert "early-exit" in capsys.readouterr().out
