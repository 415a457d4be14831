"""Records the code that a measurement runs: versions and commit."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

from suffolk.datastore.errors import Unsupported
from suffolk.datastore.version import __version__

INSTALL = "pip install 'suffolk[bench]'"
HOME = Path(__file__).resolve().parent


def package_versions(*packages: str) -> dict[str, str]:
    """Versions of Suffolk and of those ``packages`` that are installed."""
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
        _git("ls-files", "--error-unmatch", ".")  # an unrelated checkout contains the installed package
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):  # no git, or an installed package: the commit is unknown
        return None
    return f"{head}+changes" if changed else head


def missing(package: str) -> Unsupported:
    """Create the error for an optional package that is not installed."""
    return Unsupported(f"this measurement needs the package {package}; install it with: {INSTALL}")


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(HOME), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
