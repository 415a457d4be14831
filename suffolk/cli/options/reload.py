"""Reads the settings of a running server again."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

from suffolk.cli.options.setting import Options
from suffolk.serving.net.logs import set_log_requests
from suffolk.serving.net.server import Server

LOG = logging.getLogger("suffolk.server")


def server_settings(server: Server) -> dict[str, Callable[[Any], None]]:
    """The settings of every server that may change while it runs."""
    return {"grace": server.set_grace, "drain": server.set_drain, "log_requests": set_log_requests}


class SettingsReload:
    """A function for ``Server.reloads``: applies the settings that may change while the server runs, and logs the others."""

    def __init__(self, options: Options, live: Mapping[str, Callable[[Any], None]]) -> None:
        """``live``: name of a setting -> function that applies its new value."""
        self._options = options
        self._read = options.read_again
        self._live = live

    def __call__(self) -> None:
        """Raises InvalidArgument or NotFound, as at the start; nothing is applied then."""
        if self._read is None:
            return
        latest = self._read()
        for field in dataclasses.fields(latest):
            value = getattr(latest, field.name)
            if not field.compare or value == getattr(self._options, field.name):
                continue
            if field.name in self._live:
                self._live[field.name](value)
                LOG.info("reload: %s is %s now", field.name, value)
            else:
                LOG.warning("reload: %s has changed; restart the server to apply it", field.name)
        self._options = latest
