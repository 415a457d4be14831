"""Tasks to edit source files, and predictions with a given share of wrong lines. Holds the settings of their measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from suffolk.benchmarks.decode.options import PLAIN, DecodingOptions
from suffolk.benchmarks.prompts import Prompt
from suffolk.datastore.errors import Field, InvalidArgument, NotFound
from suffolk.datastore.settings import REQUIRED, Count, Within, check_fields, option

TASK = (
    "Add a comment line above every function and class of this file. Change nothing else. "
    "Answer with the whole file and no explanation.\n\n```python\n{}\n```"
)
SUFFIX = ".py"
EDITS = (
    "Add a comment line above every function and class.",
    "Add type hints to every function.",
    "Rename the first variable or parameter of every function to a clearer name.",
    "Add a docstring to every function.",
)


@dataclass(frozen=True, kw_only=True)
class PredictedEdits:
    """The files to edit, and the shares of wrong lines in predictions."""

    files: tuple[Path, ...] = option(REQUIRED, "Python files to edit, or folders of them", metavar="PATH", several=True)
    limit: Count = option(8, "number of files, chosen at random")
    lines: Count = option(30, "number of first lines of each file")
    shares: tuple[Annotated[float, Within(0, 1)], ...] = option(
        (0.0, 0.05, 0.2, 0.5, 1.0), "shares of the lines that are wrong in a prediction, each 0..1", several=True
    )


@dataclass(frozen=True, kw_only=True)
class PredictionOptions(PredictedEdits):
    """Settings of ``suffolk bench prediction``. Checked when made. ``decoding``: the model, the drafters, the length of answers."""

    decoding: DecodingOptions

    def __post_init__(self) -> None:
        check_fields(self)
        if PLAIN in self.decoding.drafters:
            raise InvalidArgument(
                Field("drafters"), f": {PLAIN} is plain decoding, which is always measured; leave it out"
            )


@dataclass(frozen=True, kw_only=True)
class AgentTasks:
    """The files that agents edit, and the sessions."""

    files: tuple[Path, ...] = option((), "Python files to edit, or folders of them", metavar="PATH", several=True)
    tasks: tuple[Path, ...] = option(
        (),
        "in place of files: prompts that each hold a file in their last code block, as 'python -m research.edit_tasks' writes them",
        metavar="PATH",
        several=True,
        excludes=("files",),
    )
    limit: Count = option(3, "number of files or tasks, chosen at random")
    lines: Count = option(25, "number of first lines of each file")
    sessions: Count = option(3, "sessions that edit each file, each from its first version on")
    turns: Annotated[int, Within(1, len(EDITS))] = option(2, "edits in each session; a task has one")


def edit_prompts(options: PredictionOptions) -> list[Prompt]:
    """One task for each file: to edit its first ``options.lines`` lines. Shorter files are left out.

    Raises:
        NotFound: a file or folder is missing.
        InvalidArgument: every file is too short.
    """
    texts = source_files(options.files, options.limit, options.lines, options.decoding.seed)
    return [Prompt(name, "edits", ({"role": "user", "content": TASK.format(text)},)) for name, text in texts.items()]


def source_files(paths: Sequence[Path], limit: int, lines: int, seed: int) -> dict[str, str]:
    """Map the names of up to ``limit`` files, chosen at random, to their first ``lines`` lines. Shorter files are left out.

    Raises the errors of ``edit_prompts``.
    """
    files = sorted(file for path in paths for file in _files(path))
    np.random.default_rng(seed).shuffle(files)
    found: dict[str, str] = {}
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace").splitlines()
        if len(text) >= lines and len(found) < limit:
            found[file.name if file.name not in found else str(file)] = "\n".join(text[:lines])
    if not found:
        raise InvalidArgument(f"no {SUFFIX} file has {lines} lines; name other --files or lower --lines")
    return found


def corrupted(text: str, others: Sequence[str], share: float, rng: np.random.Generator) -> str:
    """Return ``text`` with lines of ``others`` in place of ``share`` of its lines, chosen at random."""
    lines = text.splitlines(keepends=True)
    pool = [line for other in others for line in other.splitlines(keepends=True) if line not in lines] or ["# other\n"]
    for place in rng.choice(len(lines), round(share * len(lines)), replace=False).tolist():
        lines[place] = pool[int(rng.integers(len(pool)))]
    return "".join(lines)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return [file for file in path.rglob(f"*{SUFFIX}") if file.is_file()]
    if not path.is_file():
        raise NotFound(f"--files {path}: there is no such file or folder; name {SUFFIX} files, or folders of them")
    return [path]
