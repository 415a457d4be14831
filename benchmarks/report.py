"""Writes the results of one measurement as JSON, with everything needed to judge and repeat it, the machine included."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from suffolk.benchmarks.folder import make_folder
from suffolk.benchmarks.provenance import commit, package_versions
from suffolk.datastore.json_file import write_json


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one measurement.

    Attributes:
        benchmark: name of the measurement.
        seed: seed of every random choice.
        settings: the options. results: the values; their names contain the units.
        notes: definitions of the values, and how they were measured.
        packages: names of the packages whose versions are recorded.
    """

    benchmark: str
    seed: int
    settings: dict[str, Any]
    results: dict[str, Any]
    notes: tuple[str, ...] = ()
    packages: tuple[str, ...] = ("numpy",)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, with machine, versions, commit and command line."""
        return {
            "benchmark": self.benchmark,
            "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "command": shlex.join(sys.argv),
            "commit": commit(),
            "versions": package_versions(*self.packages),
            "machine": describe_machine(),
            "seed": self.seed,
            "settings": self.settings,
            "notes": list(self.notes),
            "results": self.results,
        }


def plain(options: Any) -> dict[str, Any]:
    """The fields of an options dataclass as plain values for JSON."""
    return {name: _plain(value) for name, value in asdict(options).items()}


def write_report(report: Report, path: Path) -> dict[str, Any]:
    """Write ``report`` as JSON; creates the folder. Returns what was written.

    Raises:
        PermissionDenied, ResourceExhausted: the file cannot be written.
    """
    make_folder(path.parent)
    written = report.to_dict()
    write_json(path, written)
    return written


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


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
