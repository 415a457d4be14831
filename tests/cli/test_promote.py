"""``suffolk promote`` moves the lead to a copy that has everything, and says what is lost with another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.cli.main import main
from tests.support.draft_server import serving
from tests.support.replica_pair import Following, contents, lead, make_replica


def test_a_copy_that_lags_leads_only_at_a_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with make_replica(tmp_path / "x" / "chat") as leader, make_replica(tmp_path / "x" / "b") as copy:
        lead(leader)
        Following(leader, copy).close()
        leader.append([1], id="a")
        with serving({"chat": leader}) as one, serving({"b": copy}) as other:
            urls = [f"grpc://{one.listening[0]}/chat", f"grpc://{other.listening[0]}/b"]
            assert main(["promote", urls[1]]) == 2
            assert (
                "b: this copy has changes below 1099511627776 and is not known to be in sync; changes that only others"
                in capsys.readouterr().err
            )
            assert main(["promote", *urls]) == 2
            assert main(["promote", "--dry-run", *urls]) == 0
            shown = capsys.readouterr().out.splitlines()
            assert ["leads" in line for line in shown] == [True, False]
            assert (leader.status().leads, copy.status().leads) == (True, False)
            assert main(["promote", "--accept-loss", urls[1]]) == 0
            assert "changes that only others have" in capsys.readouterr().out
            assert copy.status().leads
            assert contents(copy) == []


def test_a_dry_run_fails_if_a_copy_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with make_replica(tmp_path / "x" / "chat") as leader, serving({"chat": leader}) as server:
        lead(leader)
        urls = [f"grpc://{server.listening[0]}/chat", "grpc://127.0.0.1:1/chat"]
        assert main(["promote", "--dry-run", *urls]) == 2
    first, second = capsys.readouterr().out.splitlines()
    assert "leads" in first
    assert "no answer" in second
