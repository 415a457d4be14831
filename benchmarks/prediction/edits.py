"""Settings of the measurement of predicted texts: tasks to edit source files, and predictions with a given share of wrong lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from suffolk.benchmarks.decode.options import PLAIN, DecodingOptions
from suffolk.benchmarks.prompts import Prompt
from suffolk.datastore.errors import Field, InvalidArgument, NotFound
from suffolk.datastore.settings import Count, Within, check_fields

TASK = (
    "Add a comment line above every function and class of this file. Change nothing else. "
    "Answer with the whole file and no explanation.\n\n```python\n{}\n```"
)
SUFFIX = ".py"


@dataclass(frozen=True, slots=True)
class PredictionOptions:
    """Settings of ``suffolk bench prediction``. Checked when made.

    Attributes:
        decoding: the model, the drafters, and the length of answers.
        files: source files to edit, or folders of them.
        limit: number of files, chosen at random.
        lines: number of lines used from the beginning of each file.
        shares: shares of an answer's lines that are wrong in its prediction, each 0..1.
    """

    decoding: DecodingOptions
    files: tuple[Path, ...]
    limit: Count = 8
    lines: Count = 30
    shares: tuple[Annotated[float, Within(0, 1)], ...] = (0.0, 0.05, 0.2, 0.5, 1.0)

    def __post_init__(self) -> None:
        check_fields(self)
        if PLAIN in self.decoding.drafters:
            raise InvalidArgument(
                Field("drafters"), f": {PLAIN} is plain decoding, which is always measured; leave it out"
            )


def edit_prompts(options: PredictionOptions) -> list[Prompt]:
    """One task for each file: to edit its first ``options.lines`` lines. Shorter files are left out.

    Raises:
        NotFound: a file or folder is missing.
        InvalidArgument: every file is too short.
    """
    texts = source_files(options.files, options.limit, options.lines, options.decoding.seed)
    return [Prompt(name, "edits", ({"role": "user", "content": TASK.format(text)},)) for name, text in texts.items()]


def source_files(paths: Sequence[Path], limit: int, lines: int, seed: int) -> dict[str, str]:
    """Name -> the first ``lines`` lines of up to ``limit`` files, chosen at random. Shorter files are left out.

    Raises as ``edit_prompts``.
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
    """``text`` with ``share`` of its lines, chosen at random, replaced by lines of ``others``."""
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
