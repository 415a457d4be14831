"""What ``import suffolk`` gives: its names, loaded when they are used, and the example of its docstring."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import suffolk
from tests.support.tiny_models import save_tiny


def test_importing_suffolk_loads_neither_torch_nor_grpc() -> None:
    code = "import sys, suffolk; sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'grpc')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_names_are_there() -> None:
    assert all(getattr(suffolk, name) is not None for name in suffolk.__all__)
    with pytest.raises(AttributeError, match="module 'suffolk' has no attribute 'decode'"):
        suffolk.decode  # noqa: B018


def test_the_example_of_decoding_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_tiny(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    assert suffolk.__doc__ is not None
    example = suffolk.__doc__.partition("event loop:\n")[2].partition("An engine in another process")[0]
    capsys.readouterr()
    exec(textwrap.dedent(example), {})  # noqa: S102
    assert capsys.readouterr().out
