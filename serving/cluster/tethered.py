"""Runs a module as ``python -m`` does, and kills its own process when stdin closes.

python -m suffolk.serving.cluster.tethered MODULE ARGS...

The parent holds the other end of stdin. So no server outlives an actor that was killed.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, name="tether", daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
