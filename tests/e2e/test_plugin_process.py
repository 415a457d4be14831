"""Tests ``suffolk generate`` with drafters of other packages, as a process."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.plugins import install, install_guide
from tests.support.processes import ENVIRONMENT, ROOT, SUFFOLK, WAIT
from tests.support.quick_costs import known_costs
from tests.support.tiny_models import save_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("models") / "tiny"))


def run(packages: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(packages), str(ROOT)])
    return subprocess.run(
        [*SUFFOLK, *words],
        env=ENVIRONMENT | {"PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT,
    )


def test_the_package_of_the_guide_drafts(model: str, tmp_path: Path) -> None:
    packages = install_guide(tmp_path / "packages")
    options = ["--max-new-tokens", "200", "--stats-json", str(tmp_path / "stats.json"), "--compare-plain"]
    options += ["--set", "frequency_penalty=-2"]  # the text repeats itself
    options += ["--set", f"costs={known_costs(Path(model))}"]
    done = run(
        packages,
        "generate",
        "--model",
        model,
        "--drafter",
        "copy",
        "--copy-tokens",
        "6",
        *options,
        "abcabcabcabcabcabcabc,,,,,,,,",
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "stats.json").read_text())
    assert report["drafter"] == "copy"
    assert report["plain"]["identical"]
    assert set(report["accepted_by_source"]) == {str(1 << 20)}
    assert f"copy {report['accepted']}" in done.stderr
    assert max(row["depth"] for row in report["drafted"]) <= 6


def test_help_names_plugins_and_shows_the_options_of_those_asked_for(tmp_path: Path) -> None:
    packages = install_guide(tmp_path)
    plain, asked = run(packages, "generate", "--help"), run(packages, "generate", "--drafter", "copy", "--help")
    assert plain.returncode == asked.returncode == 0
    assert "copy" in plain.stdout
    assert "--copy-tokens" not in plain.stdout
    assert "--copy-tokens N" in asked.stdout
    assert "drafter copy (suffolk-copy 1.0)" in asked.stdout


def test_a_broken_package_is_named_if_its_drafter_is_asked_for(tmp_path: Path) -> None:
    packages = install(tmp_path, "broken-drafters", "broken = broken:ENTRY", {"broken.py": "import no_such_module"})
    others = run(packages, "generate", "--drafter", "prompt-lookup", "--help")
    assert (others.returncode, others.stderr) == (0, "")
    done = run(packages, "generate", "--model", "m", "--drafter", "broken", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "suffolk: drafter broken of package broken-drafters 1.0: broken:ENTRY cannot be imported: ModuleNotFoundError: "
        "No module named 'no_such_module'; fix, update or uninstall the package\n"
    )
