"""A training process that is killed or interrupted resumes and gives the same head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.support.fork_server import ForkServer
from tests.support.interrupts import default_interrupts
from tests.support.linear_head import weights, write_corpus
from tests.support.tiny_models import save_tiny


@dataclass(frozen=True)
class Place:
    """A model, a corpus, and the head of an uninterrupted run."""

    server: ForkServer
    folder: Path
    reached: dict[str, int]

    def command(self, output: Path, *words: str) -> list[str]:
        return [
            "train", "linear", "--model", str(self.folder / "model"), "--corpus", str(self.folder / "corpus.jsonl"), "--output",
            str(output), "--window", "40", "--held-out", "0.2", "--steps", "7", "--set", "evaluate_every=3",
            "--set", "save_every=2", "--learning-rate", "0.01", "--set", "head_option.dropout=0.2",
            "--set", "feature_cache=1M", *words,
        ]  # fmt: skip

    def same(self, output: Path) -> bool:
        expected, found = weights(self.folder / "reference"), weights(output)
        return all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("train")
    save_tiny(folder / "model")
    write_corpus(folder / "corpus.jsonl")
    with default_interrupts(), ForkServer("tests.support.linear_head") as server:
        first = Place(server, folder, {})
        ending = server.run(first.command(folder / "reference"), failpoint="none")
        assert ending.code == 0, ending.errors
        yield Place(server, folder, ending.reached)


def test_the_run_reaches_all_points(place: Place) -> None:
    assert place.reached["train.step"] == 7
    assert place.reached["checkpoint.written"] == place.reached["checkpoint.renamed"] == 4
    assert {"settings.json.created", "features-00000.safetensors.written", "publish.written"} <= place.reached.keys()


@pytest.mark.parametrize(
    ("failpoint", "going_on"),
    [
        ("settings.json.created", None),
        ("train.step@1", None),
        ("features-00001.safetensors.written", 2),
        ("checkpoint.written@2", 2),
        ("checkpoint.renamed@2", 4),
        ("train.step@5", 4),
        ("publish.written", 7),
    ],
)
def test_killed_anywhere_it_goes_on_to_the_same_head(
    place: Place, tmp_path: Path, failpoint: str, going_on: int | None
) -> None:
    output = tmp_path / "head"
    ending = place.server.run(place.command(output), failpoint=failpoint)
    assert ending.code == -9, ending.errors
    assert not output.exists()
    again = place.server.run(place.command(output, "--resume"))
    assert again.code == 0, again.errors
    assert (f"going on after step {going_on} of 7" in again.errors) == (going_on is not None)
    assert place.same(output)
    assert list(tmp_path.iterdir()) == [output]


def test_killed_behind_its_last_act_only_the_work_is_left_to_remove(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "head"
    assert place.server.run(place.command(output), failpoint="publish.renamed").code == -9
    assert place.same(output)
    assert len(list(tmp_path.iterdir())) == 2
    again = place.server.run(place.command(output, "--resume"))
    assert (again.code, again.errors.count("\n")) == (2, 1)
    assert "holds a trained head already" in again.errors
    assert list(tmp_path.iterdir()) == [output]


def test_ctrl_c_saves_says_how_to_go_on_and_ends_with_130(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "head"
    ending = place.server.run(place.command(output), failpoint="train.step@3:SIGINT")
    assert ending.code == 130, ending.errors
    assert ending.errors.splitlines()[-2:] == [
        "interrupted after step 3 of 7; the same command with --resume goes on",
        "suffolk: interrupted",
    ]
    assert not output.exists()
    assert place.server.run(place.command(output, "--resume")).code == 0
    assert place.same(output)
