"""Finds and loads drafters of other packages, which are entry points of the group ``suffolk.drafters``.

An entry point has the drafter's name. Its value is a ``DrafterEntry``. A package is imported when its drafter is requested.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.drafters.drafter_entry import DrafterEntry
from suffolk.serving.decoding.engine.user_code_errors import USER_CODE_ERRORS, first_line

GROUP = "suffolk.drafters"
MOST_SOURCES = 32
"""Bits of ``DraftTree.sources``."""
FIRST_SOURCE = 16
"""Smaller source ids are reserved for Suffolk's own drafters."""
log = logging.getLogger(__name__)
_loaded: dict[str, DrafterEntry] = {}


def names(built_in: Container[str]) -> list[str]:
    """The sorted names of installed plugins.

    A plugin with the name of a built-in drafter is left out with a warning.
    """
    return sorted(name for name in _installed() if not _is_hidden(name, built_in))


def loaded() -> list[DrafterEntry]:
    """The entries of loaded plugins."""
    return list(_loaded.values())


def load(name: str, built_in: Mapping[str, DrafterEntry]) -> DrafterEntry | None:
    """The entry of the plugin called ``name``; None if no package has this plugin.

    Raises:
        Unsupported: two packages have the plugin, it cannot be imported, or its entry is invalid. The message names the
            package.
    """
    if name in _loaded:
        return _loaded[name]
    points = _installed().get(name, ())
    if not points:
        return None
    packages = [_package(point) for point in points]
    if len(points) > 1:
        raise Unsupported(f"drafter {name} is in packages {' and '.join(packages)}; uninstall all but one")
    (point,), (package,) = points, packages
    try:
        entry = point.load()
    except USER_CODE_ERRORS as error:
        raise _refuse(name, package, f"{point.value} cannot be imported: {first_line(error)}") from error
    if not isinstance(entry, DrafterEntry):
        raise _refuse(
            name, package, f"{point.value} is of type {type(entry).__name__}; it must be a suffolk.DrafterEntry"
        )
    if entry.name != name:
        raise _refuse(name, package, f"its entry is called {entry.name!r}; it must have the entry point's name")
    place = entry.source_id
    if not isinstance(place, int) or not FIRST_SOURCE <= place < MOST_SOURCES:
        raise _refuse(name, package, f"source_id is {place}; it must be {FIRST_SOURCE} to {MOST_SOURCES - 1}")
    for other in _loaded.values():
        if other.source_id == place:
            raise _refuse(
                name, package, f"source_id {place} is taken by drafter {other.name} of package {other.package}"
            )
    options = {option.flag: option for each in (*built_in.values(), *_loaded.values()) for option in each.options}
    for option in entry.options:
        if options.get(option.flag, option) != option:
            raise _refuse(name, package, f"option {option.flag} is taken; name it --{name}-...")
    _loaded[name] = replace(entry, package=package)
    return _loaded[name]


def _refuse(name: str, package: str, reason: str) -> Unsupported:
    return Unsupported(f"drafter {name} of package {package}: {reason}; fix, update or uninstall the package")


@cache
def _installed() -> dict[str, tuple[EntryPoint, ...]]:
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, {}).setdefault(_package(point), point)  # a folder may be on sys.path twice
    return {name: tuple(points.values()) for name, points in found.items()}


def _package(point: EntryPoint) -> str:
    """The name and version of the package that declares ``point``."""
    if point.dist is None:
        return point.module
    return f"{point.dist.metadata['Name']} {point.dist.version}"


def _is_hidden(name: str, built_in: Container[str]) -> bool:
    if name not in built_in:
        return False
    packages = " and ".join(map(_package, _installed()[name]))
    log.warning("drafter %s of package %s is left out: Suffolk has one of this name", name, packages)
    return True
