"""``suffolk demo`` with a tiny model and a few source files in place of those of this machine."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest

from suffolk.benchmarks.demo import run
from suffolk.cli.main import main
from tests.support.tiny_models import save_tiny

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    model = save_tiny(tmp_path / "model")
    (model / "chat_template.jinja").write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    for name in ("stdlib", "purelib"):
        (tmp_path / name).mkdir()
        shutil.copy(ROOT / "datastore/errors.py", tmp_path / name / f"{name}.py")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / name))
    words = [
        "demo",
        "--model",
        str(model),
        "--folder",
        str(tmp_path / "cache"),
        "--prompts",
        "2",
        "--max-new-tokens",
        "8",
    ]
    for built in (True, False):
        assert main(words) == 0
        output = capfd.readouterr().out
        assert ("\nbuilt " in output) == built  # the second time the datastore is used again
        assert "tokens of 2 files" in output
        assert "identical" in output
        assert "  6 of 6" in output
        assert f"suffolk lookup {run.python_store(tmp_path / 'cache', str(model))} 'raise" in output


def test_a_wrong_number_of_prompts_is_refused_before_the_download(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--prompts", "-1", "--model", str(tmp_path / "missing")]) == 2
    assert capsys.readouterr().err == "suffolk: --prompts is -1; it must be 1 or more, up to 2147483647\n"


def test_a_build_that_fails_ends_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "nowhere"))
    assert main(["demo", "--model", str(save_tiny(tmp_path / "model")), "--folder", str(tmp_path / "cache")]) == 1
    assert "ended with code 2; its last line says why" in capsys.readouterr().err
