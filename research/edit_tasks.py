"""Writes edit tasks as prompts: files before a release of a package, and what its change log says of the release.

The packages are Python packages with permissive licences. Their source distributions are downloaded with pip.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from research.command import add_seed, command_parser, run_command
from research.edits import Edit
from suffolk.cli.output_file import require_folder
from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import NotFound, Unavailable

RELEASES: dict[str, tuple[str, ...]] = {
    "anyio 3.6.2 3.7.0 3.7.1": ("MIT",),
    "attrs 22.2.0 23.1.0 23.2.0": ("MIT",),
    "click 8.0.4 8.1.0 8.1.3 8.1.7": ("BSD-3-Clause",),
    "flask 2.1.3 2.2.0 2.3.0": ("BSD-3-Clause",),
    "h11 0.12.0 0.13.0 0.14.0": ("MIT",),
    "httpx 0.23.0 0.23.3 0.24.0 0.25.0": ("BSD-3-Clause",),
    "itsdangerous 2.0.1 2.1.0 2.1.2": ("BSD-3-Clause",),
    "jinja2 3.0.3 3.1.0 3.1.2": ("BSD-3-Clause",),
    "markdown-it-py 2.1.0 2.2.0 3.0.0": ("MIT",),
    "packaging 21.3 22.0 23.0 23.2": ("Apache-2.0 or BSD-2-Clause",),
    "pluggy 0.13.1 1.0.0 1.2.0": ("MIT",),
    "requests 2.28.0 2.29.0 2.31.0": ("Apache-2.0",),
    "rich 12.6.0 13.0.0 13.3.0 13.5.0": ("MIT",),
    "starlette 0.20.4 0.23.0 0.27.0": ("BSD-3-Clause",),
    "urllib3 1.26.0 1.26.9 1.26.16": ("MIT",),
    "uvicorn 0.18.0 0.20.0 0.22.0": ("BSD-3-Clause",),
    "werkzeug 2.1.2 2.2.0 2.3.0": ("BSD-3-Clause",),
}
LINES = range(20, 121)
"""Least and most lines of an edited file: an answer repeats all of it."""
_LOGS = re.compile(r"(^|/)(changes|changelog|history|release[-_]?notes)(\.\w+)?$", re.IGNORECASE)
_NOTES, _NOTE_CHARACTERS = 4, 240
_TASK = (
    "The next release of this package has these changes:\n\n{notes}\n\nMake those that concern {path}. Change nothing else. "
    "Answer with the whole file and no explanation.\n\n```python\n{file}```"
)


def read_release(package: str, version: str, folder: Path) -> dict[str, str]:
    """Path -> text of the Python files and change logs in the source distribution. It is downloaded to ``folder`` once.

    Raises Unavailable: pip cannot download it.
    """
    target = folder / f"{package}-{version}"
    if not target.is_dir():
        named = [f"{package}=={version}", "--dest", str(target)]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", *named]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise Unavailable(f"pip cannot download {package} {version}: {ended.stderr.strip().splitlines()[-1]}")
    found = {}
    for archive in target.glob("*.tar.gz"):
        with tarfile.open(archive) as files:
            for member in files:
                path = member.name.partition("/")[2]
                if (
                    member.isfile()
                    and (path.endswith(".py") or _LOGS.search(path))
                    and (file := files.extractfile(member))
                ):
                    found[path] = file.read().decode(errors="replace")
    return found


def find_edits(before: dict[str, str], after: dict[str, str]) -> Iterator[tuple[Edit, list[str]]]:
    """Yield the edited files of LINES lines, with the notes of the change log that share most words with the edit."""
    notes = [note for path, text in after.items() if _LOGS.search(path) for note in _added(before.get(path, ""), text)]
    for path, new in after.items():
        old = before.get(path)
        if old is None or old == new or not path.endswith(".py") or "test" in path:
            continue
        if old.count("\n") not in LINES or new.count("\n") not in LINES:
            continue
        words = Counter(re.findall(r"\w{4,}", "\n".join([*_added(old, new), *_added(new, old), path])))
        near = sorted(notes, key=lambda note: -sum(words[word] > 0 for word in set(re.findall(r"\w{4,}", note))))
        if near:
            yield Edit(path, old, new), near[:_NOTES]


def _added(old: str, new: str) -> list[str]:
    """The lines of ``new`` that ``old`` lacks, without short ones."""
    known = set(old.splitlines())
    return [line.strip()[:_NOTE_CHARACTERS] for line in new.splitlines() if line not in known and len(line.strip()) > 8]


def make_tasks(folder: Path, seed: int) -> list[dict[str, object]]:
    """Rows of prompts for all edits, in random order. Raises the errors of ``read_release``."""
    rows: list[dict[str, object]] = []
    for names, (licence,) in RELEASES.items():
        package, *versions = names.split()
        texts = [read_release(package, version, folder) for version in versions]
        for version, before, after in zip(versions[1:], texts, texts[1:], strict=False):
            for edit, notes in find_edits(before, after):
                task = _TASK.format(notes="\n".join(f"- {note}" for note in notes), path=edit.path, file=edit.before)
                row = {
                    "id": f"{package} {version} {edit.path}",
                    "set": "edits",
                    "source": f"{package} {version} ({licence})",
                }
                rows.append({**row, "messages": [{"role": "user", "content": task}], "after": edit.after})
    random.Random(seed).shuffle(rows)
    return rows


def write_tasks(args: argparse.Namespace) -> int:
    require_folder("output", args.output)
    check_range("--tasks", args.tasks, 1, 1_000)
    with tempfile.TemporaryDirectory(prefix="suffolk-releases-") as temporary:
        rows = make_tasks(args.releases or Path(temporary), args.seed)[: args.tasks]
    if len(rows) < args.tasks:
        raise NotFound(f"only {len(rows)} edits of {LINES.start} to {LINES.stop - 1} lines were found; lower --tasks")
    args.output.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{args.output}: {len(rows)} tasks of {len({row['source'] for row in rows})} releases")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), write_tasks, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("edit_tasks", __doc__, "edits.jsonl", "edits.jsonl --tasks 20 --releases releases/")
    parser.add_argument("output", type=Path, help="file for the prompts")
    parser.add_argument("--tasks", type=int, default=50, metavar="N", help="number of tasks (default: %(default)s)")
    parser.add_argument("--releases", type=Path, metavar="FOLDER", help="keep the downloads here")
    add_seed(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
