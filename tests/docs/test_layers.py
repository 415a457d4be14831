"""The layers of CONTRIBUTING.md are those that ``make lint`` checks."""

from __future__ import annotations

from pathlib import Path

from suffolk.datastore.settings import parse_toml

ROOT = Path(__file__).parents[2]


def test_the_listed_layers_are_the_checked_ones() -> None:
    contract = parse_toml((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    checked = [sorted(layer.replace("suffolk.", "").replace(".", "/").split(" | ")) for layer in contract["layers"]]
    listed: list[list[str]] = []
    for line in (ROOT / "CONTRIBUTING.md").read_text().split("```")[1].strip().splitlines():
        first, *others = (part.strip().removeprefix("suffolk/") for part in line[:32].split("|"))
        if first.startswith("csrc"):
            break
        listed += [[first]] if first else []
        listed[-1] += others
    assert [sorted(layer) for layer in listed] == checked
