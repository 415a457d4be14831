"""Tests the page of a measurement: what it shows, that every name is escaped, and what is refused before a measurement."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from suffolk.benchmarks.page import write_page
from suffolk.benchmarks.plot import Panel, svg
from suffolk.benchmarks.report import make_report
from suffolk.cli.main import main
from suffolk.datastore.text_table import Table
from tests.support.measurements import Page, require_page

NASTY = "<script>alert('1')</script> & $x_1$ \"quoted\" ünï"


@pytest.fixture
def measurement(tmp_path: Path) -> list[str]:
    """A measurement that would end at once with an error about its datastore."""
    return ["bench", "live", str(tmp_path / "no-such-store"), "--json", str(tmp_path / "x.json")]


def test_every_name_is_shown_and_escaped(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "new" / "page.html"
    results = {"stopped": {"done": 1, "of": 3, "unit": NASTY}}
    run = make_report("live", 0, {"store": NASTY}, results, (NASTY,))
    panels = [Panel(NASTY, NASTY, [NASTY, "b"], {NASTY: [1.0, None], "y": [2.0, 3000.0]}, logarithmic=True)] * 2
    write_page(path, run, ["", NASTY, Table((NASTY, "value"), [[NASTY, 0.12345], ["none", None]])], panels)
    require_page(path, run)
    page = Page(path.read_text(encoding="utf-8"))
    assert page.texts.count(NASTY) == 1 + 2 + 1 + 2 * 4  # text, table, note, and four places in each plot
    assert {"0.123", "-", f"stopped after 1 of 3 {NASTY}"} <= set(page.texts)
    assert "default-src 'none'" in path.read_text()


def test_charts_of_one_page_share_no_name_and_take_its_colour() -> None:
    pytest.importorskip("matplotlib")
    drawn = [
        svg(Panel(title, "s", ["a"], {"x": [1.0], "y": [2.0e3]}, logarithmic=True)) for title in ("first", "second")
    ]
    names = [set(re.findall(r' id="([^"]*)"', each)) for each in drawn]
    assert not names[0] & names[1]
    assert all("currentColor" in each and "$" not in each and "#000000" not in each for each in drawn)


def test_the_same_chart_is_drawn_alike() -> None:
    pytest.importorskip("matplotlib")
    panel = Panel("first", "s", ["a"], {str(number): [1.0] for number in range(12)})
    assert svg(panel) == svg(panel)


def test_a_page_needs_a_folder_and_a_name_of_its_own(
    measurement: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    missing = tmp_path / "new" / "page.html"
    assert main([*measurement, "--report", str(missing)]) == 2
    assert f"--report {missing}: there is no such folder" in capsys.readouterr().err
    for name in ("x.json", "x.png"):
        assert main([*measurement, "--report", str(tmp_path / name)]) == 2
        assert "is also the file of other results; name another" in capsys.readouterr().err


def test_a_page_without_matplotlib_is_refused_before_the_measurement(
    measurement: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*measurement, "--report", str(tmp_path / "page.html")]) == 2
    assert "needs the package matplotlib; install it with: pip install" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []
