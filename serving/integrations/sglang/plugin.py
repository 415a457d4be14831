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
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import Field, InvalidArgument, Unsupported
from suffolk.datastore.settings import from_json
from suffolk.serving.integrations.core import DraftCore
from suffolk.serving.integrations.options import IntegrationOptions
from suffolk.serving.integrations.running_requests import Context


class DatastoreCorpus:
    """Returns the trees of ``core`` in the layout of SGLang's ``NgramCorpus`` (0.5.23).

    Not thread-safe, like the original.

    An error in drafting gives trees without nodes. Trees have a fixed width, so an empty tree takes as long to verify
    as a full one.

    Attributes:
        draft_token_num: nodes of a tree; node 0 is the last token of the context.
    """

    def __init__(self, core: DraftCore, draft_token_num: int) -> None:
        """Takes ownership of ``core``: ``close`` closes the core."""
        self.draft_token_num = draft_token_num
        self._core = core
        self._known: set[str] = set()

    def batch_get(
        self, req_ids: Sequence[str], batch_tokens: Sequence[Sequence[int]], total_lens: Sequence[int]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return one tree for each request.

        Args:
            req_ids: ids of the b requests.
            batch_tokens: the last tokens of each sequence.
            total_lens: the full length of each sequence.

        Returns:
            int64[b * d], tokens, and int64[b * d * d], 1 if a node (row) attends to another, with d =
            ``draft_token_num``.
        """
        contexts = [
            Context(np.asarray(tokens, np.int32), key, length)
            for key, tokens, length in zip(req_ids, batch_tokens, total_lens, strict=True)
        ]
        self._known.update(req_ids)
        tokens, masks = self._core.draft_trees(contexts, self.draft_token_num)
        return tokens.astype(np.int64).ravel(), masks.astype(np.int64).ravel()

    def batch_put(self, batch_tokens: Sequence[Sequence[int]]) -> None:
        """Does nothing: the core already knows these tokens, the last ones of running requests."""

    def synchronize(self) -> None:
        """Does nothing: no insert is pending."""

    def erase_match_state(self, req_ids: Iterable[str]) -> None:
        """End requests."""
        for key in req_ids:
            self._known.discard(key)
            self._core.finish(key)

    def reset(self) -> None:
        """End all requests. The datastore is unchanged."""
        self.erase_match_state(list(self._known))

    def stats(self) -> dict[str, float]:
        """The counters of the core."""
        return self._core.stats()

    def close(self) -> None:
        """Release the datastores."""
        self._core.close()

    @property
    def remaining_token_budget(self) -> int:
        return 0

    def list_external_corpora(self) -> dict[str, int]:
        """No corpus is loaded through SGLang."""
        return {}

    def load_external_corpus_named(self, corpus_id: str, chunks: Iterable[Sequence[int]]) -> NoReturn:
        """Raises Unsupported."""
        raise Unsupported(f"corpus {corpus_id} cannot be loaded into a datastore; build one with 'suffolk build'")

    def commit_external_corpus_load(self, corpus_id: str, loaded_token_count: int) -> None:
        """Does nothing: no load succeeds."""

    def remove_external_corpus(self, corpus_id: str) -> NoReturn:
        """Raises Unsupported."""
        raise Unsupported(f"corpus {corpus_id} is not loaded; a datastore's text is deleted with 'suffolk delete'")


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
    if (found := importlib.metadata.version("sglang")) not in VERSIONS:
        raise Unsupported(f"sglang {found} is not supported; install one of {', '.join(VERSIONS)}")
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
    return from_json(IntegrationOptions, values, VARIABLE)


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
