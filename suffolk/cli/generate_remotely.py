"""``suffolk generate --worker``: the model runs elsewhere."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from suffolk.cli.generation_output import choose_colours, show
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.sampling.settings import SamplingSettings

LOCAL: dict[str, Any] = {
    "datastore": [],
    "compare_plain": False,
    "deadline_ms": None,
    "costs": None,
    "calibration": None,
    "explain": False,
    "record": None,
    "max_match": 16,
    "min_match": 1,
    "max_depth": 10,
    "dtype": "auto",
    "device": "auto",
    "threads": None,
    "bad_words": [],
}
"""Options of a model that runs here, with what says nothing."""


def generate_remotely(args: argparse.Namespace, settings: SamplingSettings, prompt: str) -> dict[str, Any]:
    """Show the text as it comes; the report. Raises InvalidArgument for options that mean nothing to a worker."""
    from suffolk.serving.worker.client import connect_worker

    for name, silent in LOCAL.items():
        if getattr(args, name) != silent:
            option = f"--{name.replace('_', '-')}"
            raise InvalidArgument(
                f"{option} cannot be given with --worker: it is for a model that runs here; leave it out, or give --model"
            )
    with connect_worker(args.worker) as worker:
        facts = worker.info()
        chat = args.chat or (facts["has_chat_template"] and not args.raw)
        drafter = args.drafter or facts["default_drafter"]
        generation = worker.generate(
            [("user", prompt)] if chat else prompt,
            settings,
            drafter,
            args.max_nodes,
        )
        show(generation, choose_colours(args.colour))
    report = {"worker": args.worker, "model": facts["model"], "drafter": drafter, **generation.stats.to_dict()}
    report["tokens_generated"] = generation.tokens
    if settings.logprobs is not None:
        report["logprobs"] = [asdict(each) for each in generation.log_probabilities]
    return report
