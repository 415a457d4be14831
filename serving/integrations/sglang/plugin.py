"""Plug-in of SGLang: if SUFFOLK_SGLANG is set, the n-gram worker drafts from datastores.

    SUFFOLK_SGLANG='{"datastores": ["grpc://127.0.0.1:7700/code"]}' \\
        python -m sglang.launch_server --model-path MODEL --speculative-algorithm NGRAM \\
        --speculative-num-draft-tokens 16 --speculative-ngram-max-trie-depth 64

Written against the sources of SGLang 0.5.23. It has not run inside SGLang yet.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
from typing import Any

from suffolk.datastore.errors import Field, InvalidArgument, Unsupported
from suffolk.serving.integrations.core import DraftCore
from suffolk.serving.integrations.options import IntegrationOptions, read_options
from suffolk.serving.integrations.sglang.corpus import DatastoreCorpus

VARIABLE = "SUFFOLK_SGLANG"
"""The environment variable with the options. SGLang has no options for plug-ins."""
WORKER = "sglang.srt.speculative.ngram_worker.NGRAMWorker"
VERSIONS = ("0.5.23",)


def register() -> None:
    """The entry point in the group ``sglang.srt.plugins``. Does nothing without SUFFOLK_SGLANG.

    Raises:
        Unsupported: this version of SGLang is not supported.
        InvalidArgument: the options are malformed.
    """
    if VARIABLE not in os.environ:
        return
    _require_version(importlib.metadata.version("sglang"))
    options = options_of(os.environ[VARIABLE])
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def replace_corpus(result: None, worker: Any, *args: Any, **named: Any) -> None:
        """Hook that runs after the worker's ``__init__``."""
        from sglang.srt.runtime_context import get_model, get_parallel, get_serving

        if worker.list_external_corpora():
            raise Unsupported(
                "SGLang loaded an external corpus; build a datastore of its text and leave that option out"
            )
        config = (named["target_worker"] if "target_worker" in named else args[-1]).model_config
        model = get_model().model_path
        tokenizer = get_serving().tokenizer_path or model
        core = make_core(options, config.vocab_size, model, tokenizer, get_parallel().tp_size)
        worker.ngram_corpus = DatastoreCorpus(core, worker.draft_token_num)

    HookRegistry.register(f"{WORKER}.__init__", replace_corpus, HookType.AFTER)


def options_of(text: str) -> IntegrationOptions:
    """The options in ``text``, a JSON object. Raises InvalidArgument if it is not an object, or a value is invalid."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(
            f'{VARIABLE} is not JSON ({error}); give an object such as {{"datastores": ["store/"]}}'
        ) from None
    return read_options(values, VARIABLE)


def make_core(options: IntegrationOptions, vocab_size: int, model: str, tokenizer: str, ranks: int) -> DraftCore:
    """The core for a worker of ``model``. ``ranks``: tensor-parallel processes that draft.

    Raises:
        Unsupported: there are several ranks. Further errors come from ``DraftCore``.
    """
    if ranks > 1:
        raise Unsupported(
            Field("tp_size"),
            f" is {ranks}; all ranks need the same draft, and late answers could make them differ; use 1",
        )
    return DraftCore(options, vocab_size, model, tokenizer)


def _require_version(found: str) -> None:
    if found not in VERSIONS:
        raise Unsupported(f"sglang {found} is not supported; install one of {', '.join(VERSIONS)}")
