"""Tests levels that a caller gives: their costs, rejected values, and JSON round trips."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffolk.benchmarks.hierarchy.agreement import Agreement, ModelVariant
from suffolk.benchmarks.hierarchy.measurement import Measurements
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound
from suffolk.datastore.settings import from_json
from suffolk.serving.decoding.drafters.hierarchy.level import Level, RunDistribution
from suffolk.serving.decoding.drafters.hierarchy.levels import Levels, read_rates
from suffolk.serving.decoding.drafters.hierarchy.plan import predict
from tests.support.hierarchy_oracle import fastest_plan

STORE, DRAFT, TARGET = Level("store", 0.5, retrieval=True), Level("draft", 1.0), Level("target", (10.0, 12.0, 13.0))
RATES = ((None, 0.5, 0.25), (None, 1.0, 0.75), (None, None, None))
LAW = RunDistribution("store", "target", (0.5, 0.25, 0.25))


def read(values: object) -> Levels:
    return from_json(Levels, values, "the document")


def test_costs_by_length() -> None:
    assert TARGET.pass_seconds([0, 1, 2, 3, 5]).tolist() == [10, 12, 13, 14, 16]
    assert Level("falling", (3.0, 2.0)).pass_seconds([0, 1, 7]).tolist() == [3, 2, 2]
    assert DRAFT.pass_seconds([0, 9]).tolist() == [1, 1]
    assert DRAFT.draft_seconds([1, 4]).tolist() == [1, 4]
    assert STORE.draft_seconds([1, 4]).tolist() == [0.5, 0.5]


def test_what_is_accepted() -> None:
    levels = Levels((STORE, DRAFT, TARGET), RATES, (LAW,))
    assert levels.reach(1, 2, 3).tolist() == [1, 0.75, 0.75**2, 0.75**3]
    assert levels.reach(0, 2, 4).tolist() == [1, 0.5, 0.25, 0, 0]
    assert levels.reach(0, 2, 1).tolist() == [1, 0.5]
    assert np.isnan(levels.reach(2, 1, 2)[1:]).all()


def test_levels_survive_json(tmp_path: Path) -> None:
    levels = Levels((STORE, DRAFT, TARGET), RATES, (LAW,))
    assert read(json.loads(json.dumps(asdict(levels)))) == levels
    (tmp_path / "rates.json").write_text(json.dumps(asdict(levels)))
    assert read_rates(tmp_path / "rates.json") == levels
    least = {"levels": [{"name": "target", "seconds": 1}], "acceptance": [[None]]}
    assert read(least) == Levels((Level("target", 1.0),), ((None,),))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": ""}, "name of a level is ''"),
        ({"name": 3}, "name of level 3 is 3, of type int; it must be a text"),
        ({"seconds": 0}, "seconds of level x is 0.0; it must be above 0"),
        ({"seconds": -1.0, "retrieval": True}, "seconds of level x is -1.0; it must be between 0 and 1000000"),
        ({"seconds": float("nan")}, "seconds of level x is nan"),
        ({"seconds": float("inf")}, "seconds of level x is inf; it must be between 0 and 1000000"),
        ({"seconds": "1"}, "seconds of level x is '1', of type str; it must be a number"),
        ({"seconds": ()}, "seconds of level x are 0 numbers"),
        ({"seconds": (1.0, 0.0)}, "seconds of level x is 0.0"),
        ({"seconds": (1.0, 2.0), "retrieval": True}, "retrieval needs a single number"),
        ({"retrieval": 1}, "retrieval of level x is 1; it must be true or false"),
    ],
)
def test_bad_levels_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Level(**dict[str, Any](name="x", seconds=1.0) | values)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ((), "are 0 numbers"),
        ((0.5, 0.4), "add up to 0.9;"),
        ((1.5, -0.5), "is 1.5; it must be between 0 and 1"),
        (0.5, "must be a tuple"),
        ((float("nan"),), "is nan"),
        (("1",), "must be a number"),
    ],
)
def test_bad_laws_are_refused(law: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"probabilities.* of runs from 'a' to 'b'.*{message}"):
        RunDistribution("a", "b", law)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"levels": ()}, "levels are 0; give 1 to 256"),
        ({"levels": ("a", DRAFT, TARGET)}, r"levels\[0\] is 'a'; it must be a Level"),
        ({"levels": (DRAFT, DRAFT, TARGET)}, "levels: two are named draft"),
        ({"levels": (DRAFT, TARGET, STORE)}, "level store is last, and it is retrieval"),
        ({"acceptance": RATES[:2]}, "acceptance has 2 entries; it must have one for each of the 3 levels"),
        ({"acceptance": (*RATES[:2], (None,))}, r"acceptance\[2\] has 1 entries"),
        (
            {"acceptance": ((None, 1.5, 0.25), *RATES[1:])},
            r"acceptance\[0\]\[1\] is 1.5; it must be between 0 and 1",
        ),
        ({"acceptance": ((None, float("nan"), 0.25), *RATES[1:])}, r"acceptance\[0\]\[1\] is nan"),
        ({"acceptance": ((None, "x", 0.25), *RATES[1:])}, r"acceptance\[0\]\[1\] is 'x'"),
        ({"acceptance": 0.5}, "acceptance is 0.5"),
        ({"runs": (LAW, LAW)}, "runs from store to target are given twice"),
        (
            {"runs": (RunDistribution("target", "draft", (1.0,)),)},
            "runs from target to draft: the verifier must come after",
        ),
        ({"runs": (RunDistribution("target", "other", (1.0,)),)}, "runs name the unknown level 'other'"),
        ({"runs": ("x",)}, r"runs\[0\] is 'x'; it must be a RunDistribution"),
    ],
)
def test_levels_that_do_not_fit_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Levels(**({"levels": (STORE, DRAFT, TARGET), "acceptance": RATES, "runs": ()} | values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "the document is of type list"),
        ({"levels": [], "acceptance": [], "speed": 1}, "the document: unknown key 'speed'"),
        ({"levels": []}, "the document has no acceptance"),
        ({"levels": {}, "acceptance": []}, "levels is {}"),
        ({"levels": [1], "acceptance": []}, r"levels\[0\] is of type int"),
        ({"levels": [{"name": "x"}], "acceptance": []}, r"levels\[0\] has no seconds"),
        ({"levels": [{"name": "x", "second": 1}], "acceptance": []}, r"levels\[0\]: unknown key 'second'"),
        ({"levels": [], "acceptance": [], "runs": [{"drafter": "x"}]}, r"runs\[0\] has no verifier"),
    ],
)
def test_other_json_is_refused(values: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read(values)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rates.json").write_bytes(content)
    with pytest.raises(Corruption, match=r"rates .*rates\.json: no JSON"):
        read_rates(tmp_path / "rates.json")


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(NotFound, match="cannot be read"):
            read_rates(path)
    (tmp_path / "rates.json").write_text('{"levels": [], "acceptance": []}')
    with pytest.raises(InvalidArgument, match=r"rates .*rates\.json: levels are 0"):
        read_rates(tmp_path / "rates.json")


def test_retrieval_that_finds_little_costs_little_to_verify() -> None:
    """Retrieval finds nothing half of the time, and otherwise three tokens.

    A pass of the target that verifies d tokens takes 10 + d.
    """
    target = Level("target", tuple(10.0 + drafted for drafted in range(6)))
    store = Level("store", 1.0, retrieval=True, found=(0.5, 0, 0, 0.5))
    runs = RunDistribution("store", "target", (0.75, 0, 0, 0.25))
    levels = Levels((store, target), ((None, None), (None, None)), (runs,))
    assert read(json.loads(json.dumps(asdict(levels)))) == levels
    assert [store.draft_lengths(tokens).tolist() for tokens in (2, 4)] == [[0.5, 0, 0.5], [0.5, 0, 0, 0.5, 0]]
    found = predict(levels, (0, 1), (3,))
    assert found.tokens == pytest.approx(1 + 0.25 * 3)
    assert found.seconds == pytest.approx((1 + 10 + 0.5 * 3) / found.tokens)
    assert fastest_plan(levels).objective == pytest.approx(found.seconds)


def test_the_measured_rate_of_retrieval_is_that_of_tokens_that_were_found() -> None:
    """Tokens are found at two of five places, and are right at one. A distribution states how often nothing is found."""
    voices = (ModelVariant("target", None),)  # type: ignore[arg-type]  # no pass is made
    chances = np.array([[[1.0], [0.0], [0.0], [0.0], [0.0]]])
    agreement = Agreement(np.ones((1, 1, 5)), [chances], [np.array([1, 1, 0, 0, 0])])
    measured = Measurements(voices, ("store",), (np.ones(2),), (0.1,), (agreement,), 1)
    levels = measured.levels()
    assert levels.acceptance[0][1] == 0.5
    assert levels.reach(0, 1, 1) == pytest.approx([1, 0.25])  # rounds begin at all places but the second
    assert levels.levels[0].found == (0.75, 0.25)


def test_a_long_law_of_what_is_found_is_summed_once() -> None:
    """Regression: the longest allowed distribution used to take half a minute, because each entry summed all entries."""
    whole = tuple([1 / (1 << 16)] * (1 << 16))
    begin = time.process_time()
    handed = Level("store", 1.0, retrieval=True, found=whole).draft_lengths(15)
    assert time.process_time() - begin < 5
    assert handed == pytest.approx([whole[0]] * 15 + [1 - 15 * whole[0]])


def test_only_retrieval_may_find_nothing() -> None:
    with pytest.raises(InvalidArgument, match="found of level draft is given, but the level is not retrieval"):
        Level("draft", 1.0, found=(1.0,))
    with pytest.raises(InvalidArgument, match="found of level store add up to 0.5"):
        Level("store", 1.0, retrieval=True, found=(0.5,))
