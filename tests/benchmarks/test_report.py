"""Tests the files of measurements: reports, plots and tables."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from suffolk.benchmarks import report
from suffolk.benchmarks.plot import Panel, require_plots, write_plot
from suffolk.benchmarks.report import make_report, write_report
from suffolk.datastore.errors import ResourceExhausted, Unsupported
from suffolk.datastore.text_table import format_table


def test_table_columns_line_up() -> None:
    lines = format_table(
        ("name", "value"), [["a", 1234567], ["longer", 0.12345], ["none", None], ["bound", 999.9]]
    ).splitlines()
    assert lines == [
        "name        value",
        "------  ---------",
        "a       1,234,567",
        "longer      0.123",
        "none            -",
        "bound       1,000",
    ]


def test_report_names_machine_versions_commit_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    write_report(make_report("retrieval", 7, {"queries": 3}, {"speed": 1.5}, ("a note",), ("numpy",)), path)
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
        write_report(make_report("x", 0, {}, {}), tmp_path / "file" / "report.json")


def test_results_stay_when_the_disk_is_full(tmp_path: Path) -> None:
    """Regression: the old file used to be truncated before the new results were written. A full disk then lost both."""
    pytest.importorskip("matplotlib")
    report, plot = tmp_path / "report.json", tmp_path / "plot.png"
    panels = [Panel("speed", "s", ["a"], {"x": [1.0]})]
    write_report(make_report("first", 0, {}, {}), report)
    write_plot(plot, "first", panels)
    before = report.read_bytes(), plot.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(ResourceExhausted, match="report.json cannot be written"):
            write_report(make_report("second", 0, {}, {}), report)
        with pytest.raises(ResourceExhausted, match="plot.png cannot be written"):
            write_plot(plot, "second", panels)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (report.read_bytes(), plot.read_bytes()) == before
    assert sorted(tmp_path.iterdir()) == [plot, report]


def test_a_report_replaces_no_link_and_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_report(make_report("x", 0, {}, {}), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "file").read_text())["benchmark"] == "x"
    os.mkfifo(tmp_path / "pipe")
    with open(os.open(tmp_path / "pipe", os.O_RDWR), "rb") as pipe:
        write_report(make_report("x", 0, {}, {}), tmp_path / "pipe")
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
