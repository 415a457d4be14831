"""Writes the results of one measurement as a page: one HTML file that needs no other file and no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from suffolk.benchmarks.folder import make_folder
from suffolk.benchmarks.parts import stop_lines
from suffolk.benchmarks.plot import Panel, svg
from suffolk.datastore.files import write_text
from suffolk.datastore.text_table import Table


def write_page(path: Path, run: dict[str, Any], parts: Sequence[str | Table], panels: Sequence[Panel]) -> None:
    """Write the page of ``run``. Creates the folder.

    Args:
        run: what ``make_report`` returned.
        parts: tables, and text between them.
        panels: the plots.

    Raises:
        Unsupported: matplotlib is not installed.
        PermissionDenied, ResourceExhausted: the file cannot be written.
    """
    page = _TEMPLATES.get_template("page.html").render(
        title=f"suffolk bench {run['benchmark']}",
        run=run,
        stopped=stop_lines(run["results"].get("stopped")),
        parts=parts,
        charts=[(panel.title, Markup(svg(panel))) for panel in panels],  # noqa: S704, ``svg`` escapes
        facts=_facts(run),
        settings=json.dumps(run["settings"], indent=2),
    )
    make_folder(path.parent)
    write_text(path, page)


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _facts(run: dict[str, Any]) -> dict[str, str]:
    machine = run["machine"]
    return {
        "command": run["command"],
        "commit": run["commit"] or "unknown",
        "finished": run["finished"],
        "seed": str(run["seed"]),
        "processor": f"{machine['cpu']}, {machine['usable_cores']} of {machine['cores']} cores usable",
        "accelerators": ", ".join(machine["accelerators"]) or "none used",
        "memory": f"{machine['memory_bytes'] / 2**30:.1f} GiB",
        "load at the end": ", ".join(f"{load:.2f}" for load in machine["load_average"]) + " (1, 5 and 15 minutes)",
        "system": f"{machine['system']}, Python {machine['python']}",
        "versions": ", ".join(f"{name} {version}" for name, version in run["versions"].items()),
    }
