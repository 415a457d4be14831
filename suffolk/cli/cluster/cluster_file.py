"""Reads the file of a cluster, with the options of its servers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suffolk.cli.commands import command_module
from suffolk.cli.options.parser import make_parser
from suffolk.cli.options.reading import merge
from suffolk.cli.options.setting import settings_of
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.cluster.config import ClusterConfig, option_words, read_config


def read_cluster(path: Path) -> ClusterConfig:
    """The cluster in a file.

    Raises:
        InvalidArgument: ``suffolk serve`` or ``suffolk worker`` has no such option, or a value is wrong. Others as ``read_config``.
    """
    config = read_config(path)
    for of, command, options in (
        ("stores", "serve", config.stores.options),
        ("workers", "worker", config.workers.options),
    ):
        try:
            _check(command, options)
        except InvalidArgument as error:
            raise InvalidArgument(f"{path}: options of {of}: {error}") from None
    return config


def _check(command: str, options: Mapping[str, Any]) -> None:
    """Raises InvalidArgument: ``command`` has no such option, or the value does not fit."""
    words, module = [*option_words(options)], command_module(command)
    settings = settings_of(module.Options, words)
    merge(make_parser(f"suffolk {command}", "", "", settings), settings, command, words)
