"""The work folder of a run, ``OUTPUT.training``. It exists until the head is complete."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.files import fsync_directory, refuse_dangling, write_atomically
from suffolk.datastore.manifest import LOCK_NAME, writer_lock
from suffolk.datastore.settings import read_object
from suffolk.serving.decoding.drafters.training.options import ANSWERING, CHANGEABLE


def work_folder(output: Path) -> Path:
    """The work folder for ``output``."""
    whole = output.resolve()
    return whole.with_name(f"{whole.name}.training")


class TrainingWorkspace:
    """The files of one run. ``open_workspace`` makes it and holds the lock."""

    def __init__(self, output: Path) -> None:
        self.output = output.resolve()
        self.folder = work_folder(output)
        self.settings = self.folder / "settings.json"
        self.checkpoint = self.folder / "checkpoint.pt"
        self.answers = self.folder / "answers.jsonl"
        self.features = self.folder / "features"
        self.result = self.folder / "result"

    def holds_work(self) -> bool:
        """Whether the folder has work to resume."""
        return self.checkpoint.exists() or (self.answers.exists() and self.answers.stat().st_size > 0)

    def new_result(self) -> Path:
        """An empty folder for the head and its card."""
        shutil.rmtree(self.result, ignore_errors=True)
        self.result.mkdir()
        return self.result

    def publish(self) -> None:
        """Rename ``result`` to the output atomically, and remove the work folder."""
        for path in self.result.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        fsync_directory(self.result)
        failpoint("publish.written")
        os.rename(self.result, self.output)  # replaces an empty folder
        failpoint("publish.renamed")
        fsync_directory(self.output.parent)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def open_workspace(output: Path, settings: Mapping[str, Any], resume: bool) -> Iterator[TrainingWorkspace]:
    """Lock and open the workspace of the run that makes ``output``. If the run fails without work to resume, the workspace is
    removed.

    Args:
        settings: all settings that decide the result, as values of JSON. They are saved, and compared when a run is resumed.
        resume: whether to continue an interrupted run.

    Raises:
        InvalidArgument: the output is not empty; an interrupted run exists and ``resume`` is False; or the settings differ from
            the settings of the run to resume.
        NotFound: there is no run to resume, or the output's parent folder is missing.
        Unavailable: another process uses the workspace.
    """
    workspace = TrainingWorkspace(output)
    _require_output(workspace)
    if resume and not workspace.folder.exists():
        raise NotFound(f"{workspace.folder}: there is no such folder, so nothing to go on with; leave --resume out")
    _require_ours(workspace)
    if workspace.holds_work() and not resume:
        raise InvalidArgument(
            f"{workspace.folder} holds an interrupted run; add --resume to go on with it, or remove that folder to start again"
        )
    _make(workspace.folder)
    with writer_lock(workspace.folder):
        if resume and workspace.settings.exists():
            _require_same(workspace, settings)
        try:
            write_atomically(workspace.settings, json.dumps(settings, indent=1).encode())
            yield workspace
        except BaseException:
            if not workspace.holds_work():
                shutil.rmtree(workspace.folder, ignore_errors=True)
            raise


def _require_output(workspace: TrainingWorkspace) -> None:
    output = workspace.output
    if not output.parent.is_dir():
        raise NotFound(f"output {output}: there is no folder {output.parent}; name one in a folder that exists")
    refuse_dangling(output)
    if output.exists() and not output.is_dir():
        raise InvalidArgument(f"output {output} is a file; name a new or empty folder")
    if output.is_mount():  # no folder can be renamed to it
        raise InvalidArgument(f"output {output} is a mount point; name a new folder in it")
    names = sorted(path.name for path in output.iterdir()) if output.exists() else []
    if "training.json" in names:
        if workspace.settings.exists() and not workspace.result.exists():  # killed between rename and cleanup
            shutil.rmtree(workspace.folder, ignore_errors=True)
        raise InvalidArgument(f"output {output} holds a trained head already; name another folder, or remove it")
    if names:
        raise InvalidArgument(f"output {output} holds {names[0]!r}; name a new or empty folder")


def _require_ours(workspace: TrainingWorkspace) -> None:
    """Raise InvalidArgument if the work folder's path is a folder of the user's."""
    if not workspace.folder.exists():
        return
    names = {path.name for path in workspace.folder.iterdir()} if workspace.folder.is_dir() else {"no folder"}
    unknown = names - {LOCK_NAME, f"{workspace.settings.name}.tmp"}
    if unknown and workspace.settings.name not in names:
        raise InvalidArgument(
            f"{workspace.folder} is where the work would lie, and holds {min(unknown)!r}; name another --output"
        )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise PermissionDenied(f"{folder}: cannot be made ({error.strerror}); choose another --output") from error


def _require_same(workspace: TrainingWorkspace, settings: Mapping[str, Any]) -> None:
    advice = f"remove {workspace.folder} and start again"
    before = read_object(workspace.settings, str(workspace.settings), advice)
    now = json.loads(json.dumps(settings))
    for name in sorted(before.keys() | settings.keys()):
        fixed = name not in CHANGEABLE if workspace.checkpoint.exists() else name in ANSWERING
        if fixed and before.get(name) != now.get(name):
            raise InvalidArgument(
                f"{name}: {_short(now.get(name))} now, and {_short(before.get(name))} in the run to resume in "
                f"{workspace.folder}; give the same, or remove that folder to start again"
            )


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
