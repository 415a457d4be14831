"""Keeps the paths of a server's files from its callers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.retriever import Retriever

LOG = logging.getLogger("suffolk.server")


class HiddenPaths:
    """Puts the names of datastores in place of their paths. Thread-safe."""

    def __init__(self) -> None:
        self._logged = ""

    @contextmanager
    def in_errors(self, stores: Mapping[str, Retriever]) -> Iterator[None]:
        """Errors of the block name ``stores`` in place of their folders. The log has the folders, once for an error that recurs."""
        try:
            yield
        except SuffolkError as error:
            text = str(error)
            for name, store in stores.items():
                path = str(getattr(store, "path", None) or "")
                if "/" in path:
                    error.replace(path, name)
            if str(error) != text != self._logged:
                LOG.error("%s", text)
                self._logged = text
            raise


def public_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """The info of a datastore without its path, and with the names of corpora in place of their paths."""
    shown = {key: value for key, value in info.items() if key != "path"}
    settings = shown.get("settings")
    if isinstance(settings, dict) and isinstance(settings.get("builds"), list):
        shown["settings"] = settings | {"builds": [_public_build(build) for build in settings["builds"]]}
    return shown


def _public_build(build: Any) -> Any:
    if not isinstance(build, dict) or not isinstance(build.get("corpora"), list):
        return build
    return build | {"corpora": [Path(str(corpus)).name for corpus in build["corpora"]]}
