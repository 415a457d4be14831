"""Decoding with drafts from text on file, for ``model.generate(custom_generate=...)`` of transformers."""

from __future__ import annotations

from functools import partial
from typing import Any

import suffolk


def generate(model: Any, streamer: Any = None, stopping_criteria: Any = None, **options: Any) -> Any:
    """Call ``model.generate`` with Suffolk's decoding loop; ``options`` may hold ``datastore``, ``drafter``, ``max_nodes``."""
    if options.get("stop_strings") is not None:
        from transformers import StoppingCriteriaList, StopStringCriteria

        # transformers does not pass the tokenizer on to loops that are functions
        texts = StopStringCriteria(options.get("tokenizer"), options.pop("stop_strings"))
        stopping_criteria = StoppingCriteriaList([*(stopping_criteria or ()), texts])
    loop = partial(suffolk.generate, streamer=streamer)
    return model.generate(streamer=streamer, stopping_criteria=stopping_criteria, custom_generate=loop, **options)
