"""Temporary folders of killed tasks are removed, and those of running ones are not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from suffolk.build_index.on_ray.cluster import remove_stale, scratch_folder
from suffolk.datastore.errors import PermissionDenied
from tests.support.building import ROOT

TASK = """
from suffolk.build_index.on_ray.cluster import scratch_folder
with scratch_folder() as folder:
    (folder / "tokens").write_text("x")
    print(folder, flush=True)
    input()
"""


def test_the_folder_of_a_killed_task_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch_folder() as ours:
        pass
    assert not ours.exists()
    with (
        scratch_folder() as ours,
        subprocess.Popen(
            [sys.executable, "-c", TASK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        ) as task,
    ):
        assert task.stdout is not None
        theirs = Path(task.stdout.readline().strip())
        assert theirs.parent == ours.parent == remove_stale()
        assert {ours, theirs} == set(ours.parent.iterdir())
        task.kill()
        task.wait()
        remove_stale()
        assert [ours] == list(ours.parent.iterdir())


@pytest.mark.parametrize("kind", ["link", "open", "foreign", "file"])
def test_a_folder_that_others_can_change_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = tmp_path / "elsewhere" / "kept"
    kept.mkdir(parents=True)
    kept.parent.chmod(0o700)
    base = tmp_path / f"suffolk-build-{os.getuid()}"
    if kind == "link":
        base.symlink_to(kept.parent)
    elif kind == "file":
        base.touch(0o700)
    else:
        kept.parent.rename(base)
        kept = base / "kept"
        if kind == "open":
            base.chmod(0o777)
        elif os.getuid():
            pytest.skip("only root can give a folder to another user")
        else:
            os.chown(base, 1234, -1)
    with pytest.raises(PermissionDenied, match="must be a folder of user .* set TMPDIR to another folder"):
        remove_stale()
    assert kept.exists()


def test_what_is_no_folder_of_a_task_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    base = remove_stale()
    (base / "note").touch()
    (base / "link").symlink_to(tmp_path)
    remove_stale()
    assert {each.name for each in base.iterdir()} == {"note", "link"}
