"""Peak memory of processes, as the system counted it."""

from __future__ import annotations

import os


def peak_memory(process: int | None = None) -> int:
    """The largest resident size in bytes that the process (None: this one) had since it began; 0 if it is gone.

    From /proc, because what getrusage tells of a child also counts the parent it was forked from.
    """
    try:
        with open(f"/proc/{process or os.getpid()}/status") as status:
            line = next((line for line in status if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    except OSError:
        return 0
    return int(line.split()[1]) * 1024
