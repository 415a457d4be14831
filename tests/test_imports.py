"""The import graph of the package and of the studies has no cycles."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

from suffolk.datastore.settings import parse_toml

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "datastore": "suffolk.datastore",
    "build_index": "suffolk.build_index",
    "serving": "suffolk.serving",
    "benchmarks": "suffolk.benchmarks",
    "capacity": "suffolk.capacity",
    "suffolk/cli": "suffolk.cli",
    "research": "research",
}
SLOW = {
    *("torch", "transformers", "numpy", "tokenizers", "grpc", "google", "prometheus_client", "rich", "asyncio"),
    *("pydantic", "starlette", "uvicorn", "jinja2", "kitoken", "huggingface_hub", "zstandard", "ray"),
}
"""Packages that take more than 10 ms to import, or that only some commands need."""


def modules() -> dict[str, Path]:
    """Map module names to files, including packages and the stub of the extension module."""
    found = {"suffolk": ROOT / "suffolk/__init__.py", "suffolk.__main__": ROOT / "suffolk/__main__.py"}
    for folder, package in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py*"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            if path.suffix in (".py", ".pyi"):
                found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules of ``known`` that ``path`` imports anywhere: at the top, in functions, and only for type checking."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {full if (full := f"{node.module}.{each.name}") in known else node.module for each in node.names}
    return found & known.keys()


def test_no_imports_go_in_a_circle() -> None:
    known = modules()
    assert len(known) > 300
    # the stub names DraftTree, which C++ makes, and the extension module imports nothing when it is loaded
    graph = {
        name: imports(path, known) - {name} if path.suffix == ".py" else set[str]() for name, path in known.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


def test_every_imported_package_is_named_in_pyproject() -> None:
    """Not only brought by another one, which may drop it. Packages that are not installed are not checked."""
    project = parse_toml((ROOT / "pyproject.toml").read_text())
    groups = [*project["project"]["optional-dependencies"].values(), *project["dependency-groups"].values()]
    lines = [*project["project"]["dependencies"], *project["build-system"]["requires"], *chain(*groups)]
    named = {_plain(re.split(r"[^\w.-]", line)[0]) for line in lines} | {
        "suffolk",
        "arctic-inference",
    }  # by 'make arctic'
    texts = [path.read_text() for path in [*modules().values(), *(ROOT / "tests").rglob("*.py")]]
    imported = {name for text in texts for name in re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE)}
    brought = packages_distributions()
    assert "numpy" in imported & brought.keys()
    assert {name for name in imported & brought.keys() if named.isdisjoint(map(_plain, brought[name]))} == set()


def _plain(distribution: str) -> str:
    return distribution.lower().replace("_", "-")


def test_every_module_is_where_its_name_says() -> None:
    for name in ("suffolk.datastore.manifest", "suffolk.benchmarks.decode.measure", "research.command"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        assert Path(spec.origin).samefile(modules()[name])


@pytest.mark.parametrize("code", ["import suffolk", "from suffolk.cli.main import main; main(['--help'])"])
def test_the_package_and_its_help_import_nothing_slow(code: str) -> None:
    loaded = "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code + loaded], capture_output=True, text=True, check=True)
    assert "suffolk" in done.stderr.split()
    assert not SLOW & set(done.stderr.split())
