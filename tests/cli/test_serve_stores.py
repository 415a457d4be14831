"""Tests the names of the datastores that a draft server serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.cli.main import main
from suffolk.cli.serve import parse_stores
from suffolk.datastore.errors import (
    InvalidArgument,
)


def test_peers_need_a_live_datastore(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["serve", str(tmp_path), "--register", f"file://{tmp_path}"]) == 2
    assert "--register is given without --live; name the live datastores" in capsys.readouterr().err
    live = ["serve", "--live", str(tmp_path / "chat"), "--live-tokenizer", "/none"]
    assert main([*live, "--peer", "grpc://127.0.0.1:1"]) == 2
    assert "--peer is given without --register; name the place" in capsys.readouterr().err
    for bad in ("0", "soon"):
        assert main([*live, "--register", f"file://{tmp_path}/r", f"--set=max_lag={bad}"]) == 2
        assert f"max_lag is '{bad}'; give seconds from 1 to 86400, or 'none'" in capsys.readouterr().err


def test_store_names(tmp_path: Path) -> None:
    assert parse_stores([f"{tmp_path}/wiki/", "code=/data/code-v3"]) == {
        "wiki": f"{tmp_path}/wiki/",
        "code": "/data/code-v3",
    }
    with pytest.raises(InvalidArgument, match="a/x has the name 'x' already; write NAME=PATH to give another"):
        parse_stores(["a/x", "b/x"])
    with pytest.raises(InvalidArgument, match="'a,b' cannot name a datastore"):
        parse_stores(["a,b=c"])
