"""Without Ray, a cluster's file is read first; then the command says what to install."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from suffolk.cli.main import main

GOOD = "{name: a, folder: /a, stores: {datastores: {s: /s}}, workers: {model: /m}}"


@pytest.mark.parametrize("command", ["up", "update"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cluster.yaml: cannot be read (No such file or directory)"),
        (GOOD.replace("model", "modle"), "cluster.yaml: workers: unknown key 'modle' (did you mean model?)"),
        (
            GOOD.replace("/m", "/m, options: {slotz: 3}"),
            "cluster.yaml: options of workers: --set slotz=3: unknown name 'slotz' (did you mean slots?)",
        ),
        (
            GOOD.replace("{s: /s}", "{s: /s}, options: {min-count: a}"),
            "cluster.yaml: options of stores: min_count is 'a'; it must be a whole number",
        ),
        (
            GOOD.replace("/m", "/m, options: {8: true}"),
            "cluster.yaml: options of workers: --set 8=true: unknown name '8'",
        ),
        (GOOD, "suffolk: ray is not installed, and clusters need it; pip install 'suffolk[ray]'"),
    ],
)
def test_the_file_is_read_first(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    text: str,
    message: str,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "suffolk.build_index.on_ray.connection", raising=False)
    monkeypatch.delitem(sys.modules, "suffolk.build_index.on_ray.connection", raising=False)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    path = tmp_path / "cluster.yaml"
    if text:
        path.write_text(text)
    assert main(["cluster", command, str(path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
