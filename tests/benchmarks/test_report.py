"""Tests the files of measurements: reports, plots and tables."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from suffolk.benchmarks import report
from suffolk.benchmarks.plot import Panel, require_plots, svg, write_plot
from suffolk.benchmarks.report import Report, write_page, write_report
from suffolk.cli.main import main
from suffolk.datastore.errors import ResourceExhausted, Unsupported
from suffolk.datastore.text_table import Table, format_table
from tests.support.measurements import Page, require_page

NASTY = "<script>alert('1')</script> & $x_1$ \"quoted\" ünï"


def test_table_columns_line_up() -> None:
    lines = format_table(("name", "value"), [["a", 1234567], ["longer", 0.12345], ["none", None]]).splitlines()
    assert lines == [
        "name        value",
        "------  ---------",
        "a       1,234,567",
        "longer      0.123",
        "none            -",
    ]


def test_report_names_machine_versions_commit_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    write_report(Report("retrieval", 7, {"queries": 3}, {"speed": 1.5}, ("a note",), ("numpy",)), path)
    found = json.loads(path.read_text())
    assert found["benchmark"] == "retrieval"
    assert found["seed"] == 7
    assert found["results"] == {"speed": 1.5}
    assert found["notes"] == ["a note"]
    assert found["machine"]["cpu"]
    assert found["machine"]["cores"] == os.cpu_count()
    assert found["machine"]["memory_bytes"] > 1 << 28
    assert found["versions"]["numpy"] == np.__version__
    assert "commit" in found
    assert "command" in found


def test_commit_is_git_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    monkeypatch.setattr(report, "HOME", tmp_path)
    assert report.commit() is None
    (tmp_path / "file").write_text("a")
    git("init")
    assert report.commit() is None  # a checkout around an installed package
    git("add", "file")
    git("-c", "user.name=n", "-c", "user.email=e@x", "commit", "-m", "first")
    clean = report.commit()
    assert clean is not None
    assert len(clean) == 40
    (tmp_path / "file").write_text("b")
    assert report.commit() == f"{clean}+changes"


def test_report_into_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceExhausted, match="cannot be written"):
        write_report(Report("x", 0, {}, {}), tmp_path / "file" / "report.json")


def test_results_stay_when_the_disk_is_full(tmp_path: Path) -> None:
    """Regression: the old file used to be truncated before the new results were written. A full disk then lost both."""
    pytest.importorskip("matplotlib")
    report, plot = tmp_path / "report.json", tmp_path / "plot.png"
    panels = [Panel("speed", "s", ["a"], {"x": [1.0]})]
    write_report(Report("first", 0, {}, {}), report)
    write_plot(plot, "first", panels)
    before = report.read_bytes(), plot.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(ResourceExhausted, match="report.json cannot be written"):
            write_report(Report("second", 0, {}, {}), report)
        with pytest.raises(ResourceExhausted, match="plot.png cannot be written"):
            write_plot(plot, "second", panels)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (report.read_bytes(), plot.read_bytes()) == before
    assert sorted(tmp_path.iterdir()) == [plot, report]


def test_a_report_replaces_no_link_and_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_report(Report("x", 0, {}, {}), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "file").read_text())["benchmark"] == "x"
    os.mkfifo(tmp_path / "pipe")
    with open(os.open(tmp_path / "pipe", os.O_RDWR), "rb") as pipe:
        write_report(Report("x", 0, {}, {}), tmp_path / "pipe")
        assert pipe.readline() == b"{\n"
    assert (tmp_path / "pipe").is_fifo()


def test_plot_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    panels = [Panel("speed", "s", ["a", "b"], {"x": [1.0, None], "y": [2.0, 3000.0]}, logarithmic=True)] * 3
    write_plot(tmp_path / "plot.png", "title", panels)
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_missing_matplotlib_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(Unsupported, match=r"matplotlib.*pip install 'suffolk\[bench\]'"):
        require_plots()


@pytest.fixture
def measurement(tmp_path: Path) -> list[str]:
    """A measurement that would end at once with an error about its datastore."""
    return ["bench", "live", str(tmp_path / "no-such-store"), "--json", str(tmp_path / "x.json")]


def test_every_name_is_shown_and_escaped(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "new" / "page.html"
    results = {"stopped": {"done": 1, "of": 3, "unit": NASTY}}
    run = Report("live", 0, {"store": NASTY}, results, (NASTY,)).to_dict()
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
