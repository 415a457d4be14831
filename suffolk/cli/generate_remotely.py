"""Runs ``suffolk generate --worker``, for which the model runs in a worker."""

from __future__ import annotations

from typing import Any

from suffolk.cli.generate_options import Options
from suffolk.cli.generation_output import generation_facts, show
from suffolk.cli.options.setting import settings_of
from suffolk.cli.source_colours import Colours
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

LOCAL = (
    "compare_plain", "deadline_ms", "costs", "calibration", "explain", "trace", "record", "max_match", "min_match", "max_depth",
    "dtype", "device", "threads", "bad_words",
)  # fmt: skip
"""Settings of a local model, besides those of drafters. A worker has its own."""


def generate_remotely(
    options: Options, settings: SamplingSettings, prompt: str, draft_options: DraftOptions
) -> dict[str, Any]:
    """Generate in a worker and show the text as it comes; returns the report.

    Raises:
        InvalidArgument: a setting of a local model is given, on the command line or in a file.
    """
    from suffolk.serving.worker.client import connect_worker

    defaults = {name: each.default for name, each in settings_of(Options).items()}
    for name in (*options.drafter_values, *LOCAL):
        given = options.given.get(name)
        if given is not None and given.value != defaults.get(name):  # 'config show' lists the defaults too
            raise InvalidArgument(
                f"{given.label} cannot be given with --worker, which has its own model and drafters; leave it out, or give --model"
            )
    with connect_worker(str(options.worker)) as worker:
        facts = worker.info()
        chat = options.chat or (facts["has_chat_template"] and not options.raw)
        drafter = options.drafter or facts["default_drafter"]
        generation = worker.generate(
            [("user", prompt)] if chat else prompt,
            settings,
            drafter,
            options.max_nodes if "max_nodes" in options.given else None,
            options=draft_options,
        )
        show(generation, Colours.choose(options.colour))
    found = {"worker": options.worker, "model": facts["model"], "drafter": drafter}
    return found | generation_facts(generation, settings)
