"""Writes the results of one measurement as JSON, with everything needed to judge and repeat it: settings, code and machine."""

from __future__ import annotations

import importlib
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic_core import to_jsonable_python

from suffolk.benchmarks.folder import make_folder
from suffolk.datastore.errors import Unsupported
from suffolk.datastore.files import write_json
from suffolk.datastore.manifest import now
from suffolk.datastore.version import __version__

INSTALL = "pip install 'suffolk[bench]'"
HOME = Path(__file__).resolve().parent


def make_report(
    benchmark: str,
    seed: int,
    settings: dict[str, Any],
    results: dict[str, Any],
    notes: Sequence[str] = (),
    packages: Sequence[str] = ("numpy",),
) -> dict[str, Any]:
    """The results of one measurement as plain values for JSON, with machine, versions, commit and command line.

    Args:
        benchmark: name of the measurement.
        seed: seed of every random choice.
        settings: the options. results: the values; their names contain the units.
        notes: definitions of the values, and how they were measured.
        packages: names of the packages whose versions are recorded.
    """
    return {
        "benchmark": benchmark,
        "finished": now(),
        "command": shlex.join(sys.argv),
        "commit": commit(),
        "versions": package_versions(*packages),
        "machine": describe_machine(),
        "seed": seed,
        "settings": settings,
        "notes": list(notes),
        "results": results,
    }


def plain(options: Any) -> dict[str, Any]:
    """The fields of an options dataclass as plain values for JSON."""
    found: dict[str, Any] = to_jsonable_python(options)
    return found


def write_report(report: dict[str, Any], path: Path) -> None:
    """Write ``report`` of ``make_report`` as JSON; creates the folder.

    Raises:
        PermissionDenied, ResourceExhausted: the file cannot be written.
    """
    make_folder(path.parent)
    write_json(path, report)


def describe_machine() -> dict[str, Any]:
    """Return processor, cores (of the machine, and usable by this process), memory in bytes, load, system, Python, accelerators.

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


def quantiles_us(seconds: Sequence[float] | npt.NDArray[np.float64]) -> dict[str, float]:
    """Return p50, p90, p99 and mean in microseconds, and the number of calls. Without calls, return only the number."""
    if not len(seconds):
        return {"calls": 0}
    p50, p90, p99 = (float(value) * 1e6 for value in np.percentile(seconds, [50, 90, 99]))
    return {
        "p50_us": p50,
        "p90_us": p90,
        "p99_us": p99,
        "mean_us": float(np.mean(seconds)) * 1e6,
        "calls": len(seconds),
    }


def package_versions(*packages: str) -> dict[str, str]:
    """Versions of Suffolk and of the ``packages`` that are installed."""
    versions = {"suffolk": __version__}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def commit() -> str | None:
    """The commit of this checkout, followed by ``+changes`` if files differ from it; None outside a checkout."""
    try:
        _git("ls-files", "--error-unmatch", ".")  # fails if the package is installed within an unrelated checkout
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):  # no git, or an installed package: the commit is unknown
        return None
    return f"{head}+changes" if changed else head


def import_optional(module: str, package: str) -> Any:
    """Import ``module``. Raises Unsupported if its ``package`` is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unsupported(f"this measurement needs the package {package}; install it with: {INSTALL}") from error


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(HOME), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
