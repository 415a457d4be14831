"""Describes the machine that a measurement runs on."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, Any]:
    """Return processor, cores (of the machine, and usable by this process), memory in bytes, system, and accelerators.

    Accelerators are listed only if torch is loaded.
    """
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": list(os.getloadavg()),
        "system": platform.platform(),
        "python": platform.python_version(),
        "accelerators": _accelerators(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()  # some architectures do not list the model there


def _accelerators() -> list[str]:
    torch = sys.modules.get("torch")  # without torch, the benchmark used no accelerator
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
