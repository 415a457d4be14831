"""Tests which drafters are loaded for given options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig


def head(folder: Path, **config: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_each_drafter_gets_its_own_options(tmp_path: Path) -> None:
    eagle, apple = (
        head(tmp_path / "eagle", suffolk="eagle"),
        head(tmp_path / "a", model_type="recurrent_drafting_drafter"),
    )
    other = head(tmp_path / "other", fusion=1)
    config = DrafterConfig(head=[str(eagle), apple], recycle=True, exit_layers=3, draft_model=None)
    assert config.parts() == {
        "early-exit": {"exit_layers": 3},
        "redrafter": {"head": [apple]},
        "eagle": {"head": [eagle]},
        "token-recycling": {"recycle": True},
    }
    assert DrafterConfig(head=[other]).parts() == {"eagle": {"head": [other]}}
    assert DrafterConfig(recycle=False, head=[]).parts() == {}


def test_models_that_are_levels_are_no_drafters_of_their_own(tmp_path: Path) -> None:
    size = {"width": 8, "target_layers": 9, "hidden_size": 8, "vocab_size": 8}
    low, high = (head(tmp_path / f"{layers}", suffolk="early-exit", layers=layers, **size) for layers in (2, 4))
    config = DrafterConfig(levels="exit-2:3 > draft-model:4", draft_model="someone/small", head=[low, high])
    assert config.parts() == {
        "hierarchy": {"levels": "exit-2:3 > draft-model:4", "draft_model": "someone/small", "head": [low]},
        "early-exit": {"head": [high]},
    }


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"draft_modle": "m"},
            InvalidArgument,
            "draft_modle is not an option of a loaded drafter; the nearest is draft_model",
        ),
        ({"head": "folder"}, InvalidArgument, "head is 'folder'; it must be a list"),
        ({"exit_layers": -1}, InvalidArgument, "exit_layers is -1; it must be 1 or more"),
        ({"draft_model": "./gone"}, NotFound, "model folder ./gone does not exist"),
        (
            {"levels": "draft-model:2"},
            InvalidArgument,
            "level draft-model needs a model .on the command line: --draft-model MODEL",
        ),
        ({"head": [Path("gone")]}, NotFound, "gone/config.json: cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_loaded(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        DrafterConfig(**options).parts()


def test_two_drafters_of_one_name_are_refused(tmp_path: Path) -> None:
    heads = [head(tmp_path / name, suffolk="eagle") for name in ("one", "two")]
    with pytest.raises(InvalidArgument, match="two drafters are eagle; leave one of them out"):
        DrafterConfig(head=heads).parts()
