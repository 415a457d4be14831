"""Which drafters a command runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from suffolk.cli.model_options import names_models, read_model_sources
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.choose import MODELS


def drafter_names(args: argparse.Namespace, choices: Sequence[str]) -> list[str]:
    """Those of --drafter, each once; without it all of ``choices``, in their order, that can draft from what is named.

    Raises:
        InvalidArgument: what a drafter needs is not named.
    """
    kinds = read_model_sources(args).kinds() if names_models(args) else []
    able = {"none", "prompt-lookup", *kinds}
    able |= {"datastore"} if args.datastore else set()
    able |= {"hybrid"} if args.datastore or kinds else set()
    for name in args.drafter or []:
        if name not in able:
            needed = MODELS.get(name, "--datastore PATH or grpc://HOST:PORT/NAME")
            raise InvalidArgument(f"--drafter {name} needs something to draft from; add {needed}")
    return list(dict.fromkeys(args.drafter or [name for name in choices if name in able]))
