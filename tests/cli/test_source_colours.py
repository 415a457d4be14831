"""Tests the colours of sources: every source has its own, colour-blind readers can tell them apart, and NO_COLOR is respected."""

from __future__ import annotations

import io
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from suffolk.cli.source_colours import COLOURS, Colours, legend, paint, print_sources, source_style
from suffolk.serving.decoding.drafters.plugins import MOST_SOURCES
from suffolk.serving.decoding.drafters.registry import BUILT_IN

VISION = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "without red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "without green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "without blue": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
"""Matrices on linear RGB that simulate colour blindness (Machado et al. 2009)."""
TO_XYZ = [[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def linear(colour: int) -> npt.NDArray[np.float64]:
    """float64[3], linear RGB of a colour of the 6 x 6 x 6 cube."""
    levels = np.array([0, 95, 135, 175, 215, 255]) / 255
    place = colour - 16
    value = levels[[place // 36, place // 6 % 6, place % 6]]
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """CIELAB of linear RGB."""
    ratio = np.array(TO_XYZ) @ rgb.clip(0, 1) / [0.9505, 1, 1.0888]
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_every_source_has_its_own_style() -> None:
    styles = {str(source_style(1 << source)) for source in range(MOST_SOURCES)}
    assert len(styles) == MOST_SOURCES
    assert {entry.source_id for entry in BUILT_IN.values()} - {None} == set(range(len(COLOURS)))


@pytest.mark.parametrize("vision", VISION)
def test_colours_differ_for_every_reader(vision: str) -> None:
    seen = [lab(np.array(VISION[vision]) @ linear(colour)) for colour in COLOURS]
    assert min(np.linalg.norm(one - other) for one, other in combinations(seen, 2)) > 9  # about 2 is just visible


def test_colours_can_be_read_on_black_and_on_white() -> None:
    for colour in COLOURS:
        light = float(np.array(TO_XYZ)[1] @ linear(colour))
        assert min((light + 0.05) / 0.05, 1.05 / (light + 0.05)) > 2


def test_a_text_of_several_sources_is_underlined() -> None:
    assert paint("a", 0) == "a"
    assert paint("a", 1) == "\x1b[38;5;32ma\x1b[0m"
    assert paint("a", 6) == "\x1b[4;38;5;208ma\x1b[0m"
    assert legend([0, 1, 0, 3, 1]).count("\x1b[0m") == 2
    assert "no drafted token was accepted" in legend([0])


def test_only_terminals_without_no_color_have_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert Colours.choose("auto") == Colours(text=True, report=False)
    assert Colours.choose("always") == Colours(text=True, report=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert Colours.choose("auto") == Colours.choose("never") == Colours(text=False, report=False)


def test_a_node_of_two_sources_counts_for_both_and_once_in_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = {
        "tokens": 20,
        "proposed_by_source": {"1": 10, "3": 4, "32": 6},
        "verified_by_source": {"1": 4, "3": 4},
        "accepted_by_source": {"1": 1, "3": 3},
    }
    print_sources(report, coloured=False)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split() for line in lines if line.strip()][-6:-1] == [
        ["datastore", "14", "8", "4", "50%", "20%"],
        ["prompt-lookup", "4", "4", "3", "75%", "15%"],
        ["eagle", "6", "0", "0", "-", "0%"],
        ["all", "drafts", "20", "8", "4", "50%", "20%"],
        ["target", "80%"],
    ]
    monkeypatch.setenv("NO_COLOR", "1")
    print_sources(report, coloured=False)
    assert "\x1b" not in capsys.readouterr().err
