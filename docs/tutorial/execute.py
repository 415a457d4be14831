"""Executes the tutorial: runs the commands of its page, and writes their output into the page.

python docs/tutorial/execute.py      # with the model of 'make demo' and the source of Python's standard library
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER / "will-suffolk-help.md"
PLOT = "replay.png"
MODEL = FOLDER.parents[1] / ".cache" / "models" / "smollm2-135m-instruct"
BLOCK = re.compile(r"^```console\n\$ (?P<command>suffolk .*?[^\\])\n(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL)
Run = Callable[[list[str]], str]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        prepare(work, MODEL, Path(sysconfig.get_paths()["stdlib"]))
        PAGE.write_text(executed(PAGE.read_text(), lambda words: run(words, work)))
        shutil.copy(work / PLOT, FOLDER / PLOT)


def prepare(work: Path, model: Path, texts: Path) -> None:
    """Put the files that the page names into ``work``: the model, Python files as the reader's own text, and the prompts."""
    (work / "model").symlink_to(model.resolve())
    shutil.copy(FOLDER / "prompts.jsonl", work)
    for file in texts.rglob("*.py"):
        if not {"site-packages", "test", "tests"} & set(file.relative_to(texts).parts):
            copy = work / "texts" / file.relative_to(texts)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)


def executed(page: str, run: Run) -> str:
    """``page`` with the output of its commands, which run in order."""

    def filled(block: re.Match[str]) -> str:
        output = run(shlex.split(block["command"]))
        return f"```console\n$ {block['command']}\n{output.rstrip()}\n```"

    return BLOCK.sub(filled, page)


def run(words: list[str], work: Path) -> str:
    """The output of a command. Ends this script if the command fails."""
    done = subprocess.run([sys.executable, "-m", *words], cwd=work, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(words)} failed with exit code {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
