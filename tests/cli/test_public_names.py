"""Tests ``import suffolk``: its names, which are imported on first use, and the examples of its docstring."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import suffolk
from suffolk.datastore.settings import parse_toml
from tests.support.stores import make_word_store
from tests.support.tiny_models import save_tiny


def test_importing_suffolk_loads_neither_torch_nor_grpc() -> None:
    code = "import sys, suffolk; sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'grpc')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_interrupt_during_imports_ends_the_command_quietly() -> None:
    code = """
import runpy, sys

class Interrupted:
    def find_spec(self, name, *_):
        if name == "suffolk.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
runpy.run_module("suffolk", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "suffolk: interrupted\n")


def test_the_entry_of_the_command_imports_no_other_package() -> None:
    code = "import sys, suffolk.__main__; sys.exit(any(name in sys.modules for name in ('numpy', 'suffolk.datastore')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    scripts = parse_toml((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"suffolk": "suffolk.__main__:main"}


def test_all_names_are_there() -> None:
    assert all(getattr(suffolk, name) is not None for name in suffolk.__all__)
    with pytest.raises(AttributeError, match="module 'suffolk' has no attribute 'decode'"):
        suffolk.decode  # noqa: B018


def test_dir_shows_the_public_names_and_no_other() -> None:
    assert dir(suffolk) == sorted(suffolk.__all__)


def test_the_example_of_a_datastore_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_word_store(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    assert suffolk.__doc__ is not None
    example = suffolk.__doc__.partition("search it:\n")[2].partition("``lookup`` and")[0]
    example = example.replace("import numpy as np\\nfrom", "sat on the")
    names: dict[str, Any] = {}
    exec(textwrap.dedent(example), names)  # noqa: S102
    assert names["tree"].match_length == 3


def test_the_example_of_decoding_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_tiny(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    assert suffolk.__doc__ is not None
    example = suffolk.__doc__.partition("event loop:\n")[2].partition("A prompt is")[0]
    capsys.readouterr()
    exec(textwrap.dedent(example), {})  # noqa: S102
    assert capsys.readouterr().out
