"""Temporary folders of killed tasks are removed, and those of running ones are not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from suffolk.build_index.on_ray.scratch import remove_stale, scratch_folder
from tests.support.building import ROOT

TASK = """
from suffolk.build_index.on_ray.scratch import scratch_folder
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
