"""``suffolk hierarchy plan --measure`` measures, plans and runs on tiny models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suffolk.benchmarks.hierarchy.trial import Trial
from suffolk.cli.main import main
from tests.support.tiny_models import save_tiny


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    base = tmp_path_factory.mktemp("plan")
    prompts = base / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("abcabcabcabc", "the cat and the dog")))
    model, small = save_tiny(base / "target", num_hidden_layers=3), save_tiny(base / "small", num_hidden_layers=1)
    return {"model": str(model), "small": str(small), "prompts": str(prompts), "rates": str(base / "rates.json")}


def plan(folders: dict[str, str], *words: str) -> int:
    named = ["--model", folders["model"], "--draft-model", folders["small"], "--prompts", folders["prompts"]]
    return main(
        ["hierarchy", "plan", "--measure", *named, "--max-new-tokens", "12", "--rounds", "1", "--depth", "3", *words]
    )


def test_it_plans_runs_and_saves_what_it_measured(folders: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--exit", "2", "--temperature", "1", "--verification", "rejection", "--save-rates", folders["rates"]]
    assert plan(folders, *words, "--json") == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["plan"] in found["by_levels"]
    assert [each["stack"] + " > target" for each in found["measured"]] == [
        " > ".join(
            [f"{name}:{tokens}" for name, tokens in zip(each["names"], each["lengths"], strict=False)] + ["target"]
        )
        for each in found["by_levels"]
        if len(each["names"]) > 1
    ]
    rates = json.loads(Path(folders["rates"]).read_text())
    names = [level["name"] for level in rates["levels"]]
    assert sorted(names) == sorted(
        [
            "prompt-lookup",
            *(f"{name}{warmth}" for name in ("exit-2", "draft-model") for warmth in ("", "@0", "@0.5")),
            "target",
        ]
    )
    assert main(["hierarchy", "plan", "--rates", folders["rates"], "--depth", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"] == found["plan"]


def test_a_plan_is_printed_where_its_run_is_stopped(
    folders: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: Ctrl-C during the runs used to discard the plans, and minutes of measurements with them."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trial, "compare", stopped)
    assert plan(folders) == 130
    captured = capsys.readouterr()
    assert "draft-model" in captured.out
    assert "suffolk: interrupted while the plans ran; what was planned is printed" in captured.err


def test_given_stacks_are_predicted_and_measured(folders: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    stacks = ["prompt-lookup:2", "exit-1:2 > draft-model:3 > target", "prompt-lookup:2 > exit-2:2"]
    assert plan(folders, *(word for stack in stacks for word in ("--stack", stack))) == 0
    out = capsys.readouterr().out
    assert out.count("2 of 2 texts equal") == 3
    for stack in ("prompt-lookup:2", "exit-1:2 > draft-model:3", "prompt-lookup:2 > exit-2:2"):
        assert f"  {stack};" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--stack", "datastore:3"], "level datastore of --stack has no source of drafts; add --datastore STORE"),
        (
            ["--stack", "exit-3:3 > draft-model:3"],
            "layers of level exit-3 is 3; it must be 1 or more, and fewer than the 3 of the model",
        ),
        (["--exit", "0"], "level 'exit-0' is unknown"),
        (["--depth", "65"], "--depth is 65; it must be between 1 and 64"),
        (["--rounds", "0"], "--rounds is 0; it must be 1 or more"),
        (["--rates", "x"], "--rates is missing; give --rates FILE, or --measure with --model and --prompts"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    folders: dict[str, str], words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(folders, *words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
