"""Tests dataclasses that are checked by their annotations, and read from JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import Within, check_fields, from_json


@dataclass(frozen=True)
class Inner:
    size: Annotated[int, Within(1, 4)]

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Outer:
    share: Annotated[float, Within(0, 1, "at most all")]
    inner: Inner | None = None
    several: tuple[Inner, ...] = ()
    kind: Literal["a", "b"] = "a"
    switch: bool = False
    limit: Annotated[int, Within(1, 2)] | None = None
    side: Annotated[str, ("left", "right")] | None = None
    sizes: Annotated[tuple[int, ...], Within(1, 2)] = (1,)

    def __post_init__(self) -> None:
        check_fields(self)


def test_nested_values_are_read() -> None:
    values = {"share": 1, "inner": {"size": 2}, "several": [{"size": 1}], "kind": "b", "limit": 2}
    assert from_json(Outer, values, "it") == Outer(1.0, Inner(2), (Inner(1),), "b", False, 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "it is of type list; it must be an object with share, inner, several"),
        ({}, "it has no share; it needs share$"),
        ({"share": 0, "shape": 1}, "it: unknown key 'shape' .did you mean share\\?.; the keys are share, "),
        ({"share": 2}, "^it: share is 2.0; it must be at most all$"),
        ({"share": 0, "side": "lef"}, "^it: side is 'lef' .did you mean left..; it must be one of left, right$"),
        ({"share": 0, "sizes": []}, "^it: sizes has 0 values; their number must be between 1 and 2$"),
        ({"share": float("nan")}, "share is nan"),
        ({"share": "1"}, "share is '1', of type str; it must be a number"),
        ({"share": 0, "kind": "c"}, "kind is 'c'; it must be one of a, b"),
        ({"share": 0, "kind": 3}, "kind is 3; it must be one of"),
        ({"share": 0, "switch": 1}, "switch is 1; it must be true or false"),
        ({"share": 0, "limit": 3}, "limit is 3; it must be between 1 and 2"),
        ({"share": 0, "inner": {"size": 1.5}}, "^it: inner: size is 1.5, of type float; it must be a whole number"),
        ({"share": 0, "inner": 3}, "inner is of type int; it must be an object with size"),
        ({"share": 0, "several": [{}]}, r"several\[0\] has no size"),
        ({"share": 0, "several": 1}, "several is 1"),
    ],
)
def test_a_refusal_names_field_value_and_limit(values: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        from_json(Outer, values, "it")


def test_a_dataclass_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="inner is 8; it must be a Inner"):
        Outer(1.0, 8)  # type: ignore[arg-type]


def test_tuples_of_a_fixed_length() -> None:
    @dataclass(frozen=True)
    class Pairs:
        pairs: tuple[tuple[int, float], ...] = ()

    check_fields(found := Pairs([[1, 2]]))  # type: ignore[arg-type]
    assert found.pairs == ((1, 2.0),)
    with pytest.raises(InvalidArgument, match=r"pairs\[0\] has 3 values; it must have 2"):
        check_fields(Pairs(((1, 2, 3),)))  # type: ignore[arg-type]
