"""Help and documentation list the settings of heads with the ranges and defaults of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from suffolk.cli.main import main
from suffolk.cli.options.setting import settings_of
from suffolk.cli.options.values import read_texts
from suffolk.cli.train import Options
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.training.heads import HEADS, HeadOption, head_maker, option_lines
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import tiny_model

KINDS = ("early-exit", "redrafter", "eagle")
LISTED = [(kind, option) for kind in KINDS for option in HEADS[kind].options]
HEAD_OPTION = settings_of(Options)["head_option"]
DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "train-a-head.md"


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.wrap(tiny_model(), accelerate=False)


def make(kind: str, target: Target, *words: str) -> dict[str, Any]:
    """Create a head from the command line's ``words``."""
    options = read_texts(HEAD_OPTION, words, "head_option")
    made = vars(head_maker(kind, options)(target))
    return {name: made.get(name) for name in ("config", "loss", "noise")}


def wrong(option: HeadOption) -> list[str]:
    """Return values just outside an option's range."""
    if bounds := re.fullmatch(r"(\d+)\.\.(\d+)", option.values):
        return [str(int(bounds[1]) - 1), str(int(bounds[2]) + 1), '"1"']
    return ["0", "2"] if "fewer than all" in option.values else ["neither", "0.5"]


@pytest.mark.parametrize(("kind", "option"), LISTED, ids=lambda each: getattr(each, "name", each))
def test_ranges_and_defaults_are_those_of_the_head(kind: str, option: HeadOption, target: Target) -> None:
    for value in wrong(option):
        with pytest.raises(InvalidArgument, match=f"^{option.name} is "):
            make(kind, target, f"{option.name}={value}")
    hidden = 32
    default = {"half of them": 1, "the model's hidden size": hidden, "twice the model's hidden size": 2 * hidden}
    word = f"{option.name}={default.get(option.default, option.default)}"
    assert make(kind, target, word) == make(kind, target)


def test_what_is_not_listed_is_refused_with_what_is(target: Target) -> None:
    for kind in KINDS:
        known = ", ".join(option.name for option in HEADS[kind].options)
        with pytest.raises(InvalidArgument, match=f"^head {kind}: unknown key 'depth'.*; the keys are {known}$"):
            make(kind, target, "depth=1")


def test_help_and_documentation_list_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(line in shown for line in option_lines() if line.split()[0] in KINDS)
    rows = re.findall(r"^\| (?:early-exit|redrafter|eagle) \| .*$", DOCS.read_text(), re.MULTILINE)
    assert rows == [
        f"| {kind} | `{option.name}` | {option.meaning} | {option.values} | {option.default} |"
        for kind, option in LISTED
    ]
