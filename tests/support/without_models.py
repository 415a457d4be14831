"""The command in a process where the packages of the extra ``worker`` cannot be imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from suffolk.cli.main import main as run
from suffolk.datastore.errors import WORKER
from tests.support.fork_server import ForkServer
from tests.support.processes import ROOT

BLOCKED = f"import sys; sys.modules.update(dict.fromkeys({WORKER!r})); "


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` to its end."""
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, timeout=120, cwd=ROOT, check=False
    )


def main(words: Sequence[str]) -> int:
    """The exit code of ``suffolk WORDS``, in a process that has imported none of the packages."""
    assert not set(WORKER) & sys.modules.keys()
    sys.modules.update(dict.fromkeys(WORKER))
    return run(words)


@cache
def _server() -> ForkServer:
    """It ends with this process, whose pipe it reads."""
    return ForkServer().__enter__()


def suffolk(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, in a fork."""
    words = [str(each) for each in arguments]
    ending = _server().run(words, function="tests.support.without_models:main")
    return subprocess.CompletedProcess(words, ending.code, ending.output, ending.errors)
