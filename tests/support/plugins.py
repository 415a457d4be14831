"""Installs packages with drafters as folders on the search path."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.processes import ROOT

GUIDE = ROOT / "docs" / "how-to" / "write-a-drafter.md"


def install(folder: Path, package: str, points: str, modules: dict[str, str]) -> Path:
    """Write ``modules`` (path -> text) and the metadata of ``package`` with its entry ``points``; return ``folder``."""
    metadata = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[suffolk.drafters]\n{points}\n")
    for path, text in modules.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    return folder


def install_guide(folder: Path) -> Path:
    """Install the package of the guide, from the code blocks in the guide."""
    project, entry, drafter = re.findall(r"```(?:toml|python)\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    points = project.partition('[project.entry-points."suffolk.drafters"]\n')[2].replace('"', "")
    return install(
        folder, "suffolk-copy", points, {"suffolk_copy/__init__.py": entry, "suffolk_copy/drafter.py": drafter}
    )
