"""Tasks to edit source files, and predictions that are wrong in a given share of their lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from suffolk.benchmarks.prediction.options import PredictionOptions
from suffolk.benchmarks.prompts import Prompt
from suffolk.datastore.errors import InvalidArgument, NotFound

TASK = (
    "Add a comment line above every function and class of this file. Change nothing else. "
    "Answer with the whole file and no explanation.\n\n```python\n{}\n```"
)
SUFFIX = ".py"


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
