"""Named points at which tests make a process kill itself, to prove that a crash there harms nothing.

``SUFFOLK_FAILPOINT=NAME@N`` in the environment: the process gets SIGKILL when it reaches the point ``NAME`` for the N-th time
(the first, without ``@N``); with ``NAME@N:SIGINT`` it gets that signal. Without the variable a point does nothing.
``tests/crash`` kills at all of them.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

FAILPOINT_VARIABLE = "SUFFOLK_FAILPOINT"

reached: Counter[str] = Counter()
"""How often each point was reached, while the variable is set."""


def failpoint(name: str) -> None:
    """Crash here if the environment asks for it. Names of points in shared code begin with the file's: ``MANIFEST.written``."""
    wanted = os.environ.get(FAILPOINT_VARIABLE)
    if wanted is None:
        return
    reached[name] += 1
    place, _, sent = wanted.partition(":")
    point, _, count = place.partition("@")
    if name == point and reached[name] == int(count or 1):
        os.kill(os.getpid(), signal.Signals[sent or "SIGKILL"])
