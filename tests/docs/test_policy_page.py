"""The page of the drafting policy states the constants of the code."""

from __future__ import annotations

import re
from pathlib import Path

from suffolk.serving.decoding.engine.policy import constants

PAGE = Path(__file__).parents[2] / "docs" / "design" / "policy.md"


def test_the_table_of_constants_is_that_of_the_code() -> None:
    table = dict(re.findall(r"^\| `([A-Z_]+)` *\| ([\d.]+) ", PAGE.read_text(), re.MULTILINE))
    known = {name: str(value) for name, value in vars(constants).items() if name.isupper()}
    assert table == known
    assert len(known) <= 25


def test_the_policy_stays_small() -> None:
    folder = Path(constants.__file__).parent
    assert sum(len(file.read_text().splitlines()) for file in folder.glob("*.py")) <= 700
