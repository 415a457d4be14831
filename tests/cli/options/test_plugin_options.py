"""Options of drafters from other packages are known if a command or its file names the drafter."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from suffolk.cli.main import main
from suffolk.cli.options.config_file import read_config
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters import plugins
from suffolk.serving.decoding.drafters.drafter_entry import DrafterEntry, DrafterOption


def install(monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    option = DrafterOption(flag, "how much to echo", int, "N")
    entry = DrafterEntry(name="echo", source_id=9, loader="x:y", options=(option,), package="echo-drafter 1.0")
    modules = "suffolk.cli.generate_options", "suffolk.cli.generate"  # importing them reads the names of drafters
    for module in modules:
        importlib.import_module(module)
    for module in modules:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(plugins, "names", lambda built_in: ["echo"])
    monkeypatch.setattr(plugins, "_loaded", {"echo": entry})


def test_the_options_of_a_named_plugin_are_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "--echo-depth")
    assert main(["generate", "--drafter", "echo", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "drafter echo (echo-drafter 1.0):\n  --echo-depth N       how much to echo\n" in shown
    assert main(["config", "show", "generate", "--drafter", "echo", "--echo-depth", "3"]) == 0
    assert "echo_depth = 3  # command line" in capsys.readouterr().out
    assert main(["generate", "--help"]) == 0
    assert "--echo-depth" not in capsys.readouterr().out


def test_a_file_may_name_a_plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, "--echo-depth")
    file = tmp_path / "x.toml"
    file.write_text('[generate]\ndrafter = "echo"\necho_depth = 4\n')
    assert read_config(file, "generate", ["--config", str(file)])["echo_depth"].value == 4
    with pytest.raises(InvalidArgument, match="unknown key 'echo_depth'"):
        read_config(file, "generate")


def test_an_option_of_the_commands_own_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "--model")
    assert main(["generate", "--drafter", "echo", "--help"]) == 2
    assert "option --model is one of the command's own; the package must name it --echo-..." in capsys.readouterr().err
