"""Recognises folders of datastores, and of Delta, Hudi and Iceberg tables. These tables have a log of their valid files."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable

from suffolk.datastore.manifest import MANIFEST_NAME, SEGMENTS_NAME

DATASTORE = "datastore"
PUSHED_NAME = "generations"
"""Folder that every pushed datastore contains."""

_FOLDERS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
_ICEBERG = "metadata", "*.metadata.json"
_LOG_AT_URL = re.compile(r"(.*/)(?:(_delta_log)/.*|metadata/[^/]*\.metadata\.json)")

_STORE_AT_URL = re.compile(rf"(.*/)(?:({SEGMENTS_NAME}|{PUSHED_NAME})/[^/]*|{re.escape(MANIFEST_NAME)})")


def table_problem(parent: str, folders: Iterable[str]) -> str:
    """Return why the files of ``parent``, a folder with ``folders``, are not read. Empty if ``parent`` is no table."""
    name = next((_FOLDERS[each] for each in folders if each in _FOLDERS), "")
    if not name and _ICEBERG[0] in folders and glob.glob(os.path.join(glob.escape(parent), *_ICEBERG)):
        name = "Iceberg"
    return _problem(name) if name else ""


def tables_at(urls: Iterable[str]) -> dict[str, str]:
    """Find the folders of tables among files at ``urls``, each with the reason why its files are not read."""
    found = filter(None, map(_LOG_AT_URL.fullmatch, urls))
    return {log[1]: _problem(_FOLDERS.get(log[2], "Iceberg")) for log in found}


def stores_at(urls: Iterable[str]) -> dict[str, str]:
    """Find the folders of datastores among files at ``urls``, each with the reason ``DATASTORE``."""
    folders: dict[str, set[str]] = {"segments": set(), "other": set()}
    for found in filter(None, map(_STORE_AT_URL.fullmatch, urls)):
        folders["segments" if found[2] == SEGMENTS_NAME else "other"].add(found[1])
    return dict.fromkeys(folders["segments"] & folders["other"], DATASTORE)


def is_store(folders: Iterable[str], names: Iterable[str]) -> bool:
    """Whether a folder with these ``folders`` and files is a datastore, perhaps a pushed one."""
    return SEGMENTS_NAME in folders and (MANIFEST_NAME in names or PUSHED_NAME in folders)


def _problem(name: str) -> str:
    return f"{name} table, whose files also hold removed rows (export its rows, or name its files)"
