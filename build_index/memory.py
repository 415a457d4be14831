"""Peak memory of processes."""

from __future__ import annotations

import os


def peak_memory(process: int | None = None) -> int:
    """The largest resident size of a process since its start, in bytes; 0 if it has ended.

    If ``process`` is None, that of this process. The size is read from /proc, because getrusage of a child process includes its
    parent's size at the fork.
    """
    try:
        with open(f"/proc/{process or os.getpid()}/status") as status:
            line = next((line for line in status if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    except OSError:
        return 0
    return int(line.split()[1]) * 1024
