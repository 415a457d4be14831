"""A name means one thing: no two public classes of the product share one."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("datastore", "build_index", "serving", "capacity", "benchmarks", "suffolk")
EACH_COMMAND = "Options"
"""Of each command, by which they are found."""


def test_no_class_name_stands_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        if path.is_symlink() or "_pb2" in path.name:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name != EACH_COMMAND:
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
