"""Named points at which tests kill a process, to check that a crash there leaves all files usable.

If the environment has ``SUFFOLK_FAILPOINT=NAME@N``, the process sends itself SIGKILL when it reaches point ``NAME`` for the
N-th time (by default the first). ``NAME@N:SIGINT`` sends that signal instead. Without the variable a point does nothing.
``tests/crash`` kills at every point.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

FAILPOINT_VARIABLE = "SUFFOLK_FAILPOINT"

reached: Counter[str] = Counter()
"""How often each point was reached, while the variable is set."""


def failpoint(name: str) -> None:
    """Crash here if the environment names this point. In shared code, a name begins with the file's name:
    ``MANIFEST.written``."""
    wanted = os.environ.get(FAILPOINT_VARIABLE)
    if wanted is None:
        return
    reached[name] += 1
    place, _, sent = wanted.partition(":")
    point, _, count = place.partition("@")
    if name == point and reached[name] == int(count or 1):
        os.kill(os.getpid(), signal.Signals[sent or "SIGKILL"])
