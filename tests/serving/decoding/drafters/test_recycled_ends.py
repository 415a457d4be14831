"""Tests the table of next tokens. The newest candidates are used, a small capacity is used well, and bad input is ignored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from suffolk.datastore._native import NextTokenTable
from suffolk.datastore.errors import InvalidArgument

Ids = npt.NDArray[np.int32]


def ids(*tokens: int) -> Ids:
    return np.array(tokens, np.int32)


def law(first: int) -> tuple[Ids, npt.NDArray[np.float32]]:
    """Return one row of log probabilities: ``first`` is almost certain, and seven others are unlikely."""
    tokens = np.arange(first, first + NextTokenTable.WIDTH, dtype=np.int32)
    return tokens[None], np.array([[-0.01] + [-7.0] * (NextTokenTable.WIDTH - 1)], np.float32)


def best(table: NextTokenTable, text: Ids) -> int | None:
    """Return the likeliest token after ``text``."""
    tokens, _, _ = table.draft(text, len(text), 1, 1, 0, 0.0)
    return int(tokens[0]) if len(tokens) else None


def test_the_newest_law_and_the_longest_end_count() -> None:
    table = NextTokenTable(64)
    table.learn(ids(1, 2, 3, 4, 0), *law(10))
    table.learn(ids(9, 9, 3, 4, 0), *law(30))
    assert best(table, ids(1, 2, 3, 4)) == 10
    assert best(table, ids(7, 7, 3, 4)) == 30  # the newer candidate after (3, 4)
    table.learn(ids(1, 2, 3, 4, 0), *law(50))
    assert best(table, ids(1, 2, 3, 4)) == best(table, ids(4)) == 50
    assert best(table, ids(5)) is None
    assert best(table, ids()) is None


def test_each_row_stands_behind_the_tokens_before_its_own() -> None:
    table = NextTokenTable(64)
    rows = [law(first) for first in (10, 20, 30)]
    table.learn(ids(1, 2, 3, 4), np.concatenate([row[0] for row in rows]), np.concatenate([row[1] for row in rows]))
    assert [best(table, ids(last)) for last in (1, 2, 3, 4)] == [10, 20, 30, None]
    assert table.size == 1 + 2 + 3


def test_a_longer_end_is_trusted_more() -> None:
    table = NextTokenTable(64)
    table.learn(ids(1, 2, 3, 4, 0), *law(10))
    scores = [float(table.draft(ids(*text), 9, 1, 1, 0, 0.0)[2][0]) for text in ((4,), (3, 4), (2, 3, 4), (1, 2, 3, 4))]
    assert scores == sorted(set(scores))


def test_where_the_target_draws_its_noise_chooses() -> None:
    table = NextTokenTable(64)
    tokens = np.arange(NextTokenTable.WIDTH, dtype=np.int32)[None]
    table.learn(ids(1, 0), tokens, np.full(tokens.shape, -2.1, np.float32))
    firsts = {int(table.draft(ids(1), position, 1, 1, 5, 0.7)[0][0]) for position in range(100)}
    assert firsts == set(range(NextTokenTable.WIDTH))
    assert {int(table.draft(ids(1), position, 1, 1, 5, 0.0)[0][0]) for position in range(100)} == {0}


def test_little_room_holds_the_newest_and_what_is_used() -> None:
    table = NextTokenTable(64)
    rng = np.random.default_rng(0)
    for number in range(500):
        text = rng.integers(0, 1000, 8).astype(np.int32)
        table.learn(text, *law(number))
        assert table.size <= 64
        assert best(table, text[:-1]) == number
    assert table.size == 64
    table.learn(ids(5001, 0), *law(1))
    table.learn(ids(5002, 0), *law(2))
    for number in range(6000, 6500):
        table.learn(ids(number, 0), *law(3))
        assert best(table, ids(5001)) == 1
    assert best(table, ids(5002)) is None


TEXT = ids(1, 2, 3, 4)
TOKENS, LOGS = law(10)


@pytest.mark.parametrize(
    ("text", "tokens", "logs", "message"),
    [
        (TEXT, TOKENS[:, :5], LOGS[:, :5], "candidates have rows of 5 entries; there must be 8"),
        (TEXT, TOKENS, LOGS[:, :5], "log_probabilities have rows of 5 entries; there must be 8"),
        (TEXT, TOKENS[0], LOGS, "candidates is int32 with 1 axes; it must be an array of int32 with two axes"),
        (TEXT, TOKENS.astype(np.int64), LOGS, "candidates is int64 with 2 axes"),
        (TEXT, TOKENS, LOGS.astype(np.float64), "log_probabilities is float64 with 2 axes"),
        (TEXT, TOKENS, None, "log_probabilities is NoneType"),
        (TEXT[None], TOKENS, LOGS, "tokens is int32 with 2 axes"),
        (TEXT, TOKENS.repeat(2, 0), LOGS, "16 candidates have 8 log probabilities; the numbers must be equal"),
        (TEXT[:1], TOKENS, LOGS, "1 rows of candidates stand behind a text of 1 tokens"),
        (TEXT[:0], TOKENS, LOGS, "1 rows of candidates stand behind a text of 0 tokens"),
        (
            TEXT,
            np.concatenate([TOKENS, -TOKENS]),
            LOGS.repeat(2, 0),
            "a candidate of row 1 is -10; it must be 0 or more",
        ),
    ],
)
def test_what_is_no_row_teaches_nothing(text: Ids, tokens: Ids, logs: npt.NDArray[np.float32], message: str) -> None:
    table = NextTokenTable(64)
    with pytest.raises(InvalidArgument, match=message):
        table.learn(text, tokens, logs)
    assert table.size == 0


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: NextTokenTable(-1), "ends is -1; it must be 64 or more"),
        (lambda: NextTokenTable(63), "ends is 63; it must be 64 to 16777216"),
        (lambda: NextTokenTable(2**24 + 1), "ends is 16777217; it must be 64 to 16777216"),
        (lambda: NextTokenTable(64).draft(TEXT, 0, -1, 1, 0, 0.0), "max_depth is -1; it must be 0 or more"),
        (lambda: NextTokenTable(64).draft(TEXT, 0, 1, -1, 0, 0.0), "max_nodes is -1; it must be 0 or more"),
        (
            lambda: NextTokenTable(64).draft(TEXT, 0, 1, 2**31, 0, 0.0),
            "max_nodes is 2147483648; it must be at most 2147483647",
        ),
        (lambda: NextTokenTable(64).draft(TEXT, 0, 1, 1, 0, -0.5), "temperature is -0.5"),
        (lambda: NextTokenTable(64).draft(TEXT, 0, 1, 1, 0, float("nan")), "temperature is nan"),
        (lambda: NextTokenTable(64).draft(TEXT.astype(np.int64), 0, 1, 1, 0, 0.0), "tokens is int64 with 1 axes"),
    ],
)
def test_what_is_out_of_bounds_is_refused(work: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        work()


def test_rows_that_are_not_in_order_are_read_as_they_are() -> None:
    table = NextTokenTable(64)
    wide = np.zeros((2, 2 * NextTokenTable.WIDTH), np.int32)
    wide[:, ::2] = np.concatenate([law(10)[0], law(20)[0]])
    table.learn(ids(1, 2, 3), wide[::-1, ::2], LOGS.repeat(2, 0))
    assert [best(table, ids(last)) for last in (1, 2)] == [20, 10]
