"""Tests calibrations, their reliability diagrams, and their files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, SuffolkError, Unsupported
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.calibration.calibration_file import read_calibration, write_calibration
from suffolk.serving.decoding.drafters.calibration.confidence import Confidence, Reliability
from suffolk.serving.decoding.drafters.retrieval.datastore import PRIOR
from tests.support.drafters import scored, teach

TREE = DraftTree(
    np.array([5], np.int32), np.array([-1], np.int32), np.zeros(1, np.float32), np.ones(1, np.uint32),
    np.array([8], np.uint64), 3, 10,
)  # fmt: skip
RIGHT = [5]


def learn(calibration: Calibration, tokens: list[int], times: int) -> None:
    for _ in range(times):
        teach(calibration.text("store", PRIOR), TREE, tokens)


def chance(calibration: Calibration) -> float:
    return float(scored(calibration.text("store", PRIOR), TREE).scores[0])


def test_what_was_learned_is_kept_with_what_nobody_asked_for(tmp_path: Path) -> None:
    path, calibration = tmp_path / "calibration.json", Calibration()
    learn(calibration, RIGHT, 50)
    network = calibration.neural("a network")
    network.learn(np.array([0.9, 0.1]), np.asarray(1), False, np.array([False, True]))
    write_calibration(path, calibration)
    again = read_calibration(path)
    assert chance(again) == chance(calibration)
    errors = [each.text("store", PRIOR).reliability.error() for each in (again, calibration)]
    assert errors[0] == errors[1]
    write_calibration(path, again)  # the network was not selected
    own = np.array([0.9])
    chances = [
        each.neural("a network").chances(own, np.asarray(1), False)[0] for each in (calibration, read_calibration(path))
    ]
    assert chances[0] == chances[1] < 0.9


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, NotFound, "cannot be read"),
        ("{", Corruption, "no JSON .*; name a file that --calibration wrote"),
        ("[" * 100_000, Corruption, "no JSON"),
        ("[]", Corruption, "holds a list, no object"),
        ("{}", Corruption, "is not a calibration"),
        ('{"suffolk": "calibration", "version": 9}', Unsupported, "has version 9, this program reads 2"),
        ('{"suffolk": "calibration", "version": 2}', Corruption, "is damaged"),
    ],
)
def test_what_is_no_calibration_is_refused(
    tmp_path: Path, content: str | None, error: type[SuffolkError], message: str
) -> None:
    path = tmp_path / "calibration.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(error, match=message):
        read_calibration(path)


@pytest.mark.parametrize(
    "damage",
    [
        {"kind": "other"},
        {"state": {"cells": [1], "values": []}},
        {"state": {"cells": [-1], "values": [0.0]}},
        {"state": {"cells": [1 << 40], "values": [0.0]}},
        {"state": {"cells": [1.0], "values": [0.0]}},
        {"state": {"cells": [1, 1], "values": [0.0, 0.0]}},
        {"state": {"cells": [1], "values": ["1"]}},
        {"state": 7},
        {"source": {}},
        {"reliability": [0.0] * 10 + [9.0] * 10 + [1.0] * 10},
        {"reliability": [0.0]},
        {"reliability": [float("nan")] * 30},
    ],
)
def test_a_damaged_calibration_is_refused(tmp_path: Path, damage: dict[str, object]) -> None:
    path, calibration = tmp_path / "calibration.json", Calibration()
    learn(calibration, RIGHT, 1)
    write_calibration(path, calibration)
    content = json.loads(path.read_text())
    content["learned"][0].update(damage)
    path.write_text(json.dumps(content))
    with pytest.raises(Corruption, match=r"calibration .* is damaged: .*; remove it to begin anew"):
        read_calibration(path)


def test_impossible_tallies_are_refused() -> None:
    for learner in (Calibration().text("store", PRIOR), Confidence()):
        for value in (-1.0, float("nan"), float("inf")):
            state = learner.state()
            state[0] = value
            with pytest.raises(InvalidArgument, match="calibration: a state has"):
                learner.restore(state)
        with pytest.raises(InvalidArgument, match="entries; it must have"):
            learner.restore(np.zeros(3))


def test_reliability_is_the_distance_between_prediction_and_outcome() -> None:
    reliability = Reliability()
    reliability.add(np.array([0.9] * 10), np.array([True] * 7 + [False] * 3))
    reliability.add(np.array([0.05] * 10), np.array([False] * 10))
    assert reliability.error() == pytest.approx((0.2 * 10 + 0.05 * 10) / 20)
    assert reliability.error(0.1) == pytest.approx(0.2)
    assert [(bar.measured, bar.weight) for bar in reliability.bars()] == [(0.0, 10.0), (0.7, 10.0)]
    assert Reliability().error() == 0.0


def test_more_outcomes_than_predictions_are_refused_however_few() -> None:
    """Regression: a bin with almost no weight but one outcome used to have a frequency of 1e9. Its bar had that length."""
    state = Reliability().state()
    state[10:30:10] = 1e-3, 1e-12
    with pytest.raises(InvalidArgument, match="more outcomes than predictions"):
        Reliability().restore(state)
    state[10:30:10] = 1e-12, 1e-12
    Reliability().restore(state)


def test_what_is_no_probability_teaches_nothing() -> None:
    learner = Confidence()
    learner.learn(np.array([float("nan")]), np.asarray(1), False, np.array([True]))
    assert learner.reliability.weight == 0
    assert np.all(np.isfinite(learner.state()))


def test_a_learner_takes_as_many_depths_as_candidates() -> None:
    one = Confidence()
    one.learn(np.array([0.2, float("nan"), 0.4]), np.array([1, 2, 3]), False, np.array([True, True, False]))
    assert one.reliability.weight == 2


def test_a_source_that_occurs_twice_in_a_file_is_refused(tmp_path: Path) -> None:
    path, calibration = tmp_path / "calibration.json", Calibration()
    learn(calibration, RIGHT, 1)
    write_calibration(path, calibration)
    content = json.loads(path.read_text())
    content["learned"] *= 2
    path.write_text(json.dumps(content))
    with pytest.raises(Corruption, match="source store occurs twice"):
        read_calibration(path)
