"""Shared state of the ``generate`` calls of one model: checked target, measured costs, drafter and logits processors."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor

from suffolk.datastore.retriever import Retriever
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.drafters.registry import NONE
from suffolk.serving.decoding.drafters.retrieval.limits import Limits, require_match
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model import tree_attention
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.policy.planner import Planner
from suffolk.serving.open_store import open_store

_ATTRIBUTE = "_suffolk_sessions"
_LOCK = threading.Lock()
Processor = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(texts int64[k, n], scores float[k, vocab]) -> scores float[k, vocab]."""
_ROWWISE = frozenset(
    getattr(transformers, name)
    for name in (
        "EpsilonLogitsWarper", "EtaLogitsWarper", "ForcedEOSTokenLogitsProcessor", "InfNanRemoveLogitsProcessor",
        "LogitNormalization", "MinLengthLogitsProcessor", "MinNewTokensLengthLogitsProcessor", "MinPLogitsWarper",
        "NoBadWordsLogitsProcessor", "NoRepeatNGramLogitsProcessor", "SequenceBiasLogitsProcessor",
        "SuppressTokensLogitsProcessor", "TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper",
        "TypicalLogitsWarper",
    )
)  # fmt: skip
"""Processors whose result for a row depends only on that row. They accept any number of rows."""


class _Sessions(dict[Any, "Session"]):
    """The sessions of a model, stored as an attribute. Copies and pickles of the model start without sessions."""

    def __reduce__(self) -> tuple[type[_Sessions], tuple[()]]:
        return _Sessions, ()

    def __deepcopy__(self, memo: Any) -> _Sessions:
        return _Sessions()


def find_session(model: Any, datastore: str | Path | None, drafter: str) -> Session:
    """Return the session of ``model`` with this datastore and drafter. The first call opens it. Thread-safe.

    Raises the errors of ``generate``.
    """
    key = str(datastore), drafter, str(model.dtype), str(model.device)
    with _LOCK:
        sessions = model.__dict__.setdefault(_ATTRIBUTE, _Sessions())
        if key not in sessions:
            sessions[key] = Session(model, datastore, drafter)
        found: Session = sessions[key]
        return found


class Session:
    """Decodes ``generate`` calls of one model, one at a time. Thread-safe.

    Between calls, the model's original attention and mode are restored.

    Attributes:
        drafter: name of the drafter; empty for none.
        numbers: unused request numbers.
    """

    def __init__(self, model: Any, datastore: str | Path | None, drafter: str) -> None:
        """Check the model, open the datastore and measure the model's passes. Raises the errors of ``generate``."""
        self.drafter = "" if drafter == NONE else drafter
        self.numbers = itertools.count(1)
        self._model = model
        self._lock = threading.RLock()
        with ExitStack() as stack:
            stores: list[Retriever] = []
            if datastore is not None:
                stores.append(open_store(str(datastore)))
                stack.callback(stores[0].close)
                _require_fit(stores[0], str(datastore), model)
            made = make_drafter(drafter, model.get_input_embeddings().num_embeddings, stores)
            self._drafters: dict[str, Drafter] = {} if made is None else {drafter: made}
            with _own_attention(model):
                self._target = Target.wrap(model, name=getattr(model, "name_or_path", ""))
                self._planner = Planner(find_costs(self._target, 1).costs) if made is not None else None
            stack.pop_all()

    @contextmanager
    def decoding(self, rows: int, capacity: int, eos_ids: frozenset[int]) -> Iterator[StepLoop]:
        """The loop of one call, with ``rows`` slots of ``capacity`` tokens. ``eos_ids`` end a row."""
        with self._lock, _own_attention(self._model):
            self._model.eval()
            self._model.set_attn_implementation(tree_attention.NAME)
            loop = StepLoop(replace(self._target, eos_ids=eos_ids), self._drafters, self._planner, rows, capacity)
            try:
                yield loop
            finally:
                for request in [*loop.running]:
                    loop.leave(request)


@contextmanager
def _own_attention(model: Any) -> Iterator[None]:
    """Restore the model's attention and mode at the end of the block."""
    attention, training = model.config._attn_implementation, model.training
    try:
        yield
    finally:
        model.set_attn_implementation(attention)
        model.train(training)


def _require_fit(store: Retriever, name: str, model: Any) -> None:
    folder = Path(getattr(model, "name_or_path", "") or "")
    mark = fingerprint(load_tokenizer(folder)) if (folder / "tokenizer.json").is_file() else None
    require_match(store, name, Limits(), str(folder), mark, model.get_input_embeddings().num_embeddings)


def row_processors(
    processors: LogitsProcessorList, row: int, batch: int, padding: torch.Tensor
) -> tuple[Processor, ...]:
    """Return the processors of ``row`` of ``batch``, as one function of texts without padding; empty if there are none.

    The processors get the texts with ``padding`` (int64[p]) in front, as in ``generate``.
    """
    if not processors:
        return ()
    own = [_of_row(each, row, batch) for each in processors]

    def process(texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        padded = torch.cat([padding.to(texts.device).expand(len(texts), -1), texts], 1)
        for each in own:
            scores = each(padded, scores)
        return scores

    return (process,)


def _of_row(processor: Processor, row: int, batch: int) -> Processor:
    if type(processor) in _ROWWISE:
        return processor
    if type(processor) is RepetitionPenaltyLogitsProcessor:
        ignored = processor.prompt_ignore_length
        own = int(ignored[row]) if isinstance(ignored, torch.Tensor) else ignored
        return RepetitionPenaltyLogitsProcessor(processor.penalty, own)

    def one_by_one(texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Each text replaces ``row`` in a full batch, because a processor can depend on the row number."""
        results = [
            processor(text.expand(batch, -1).clone(), own.expand(batch, -1).clone())[row]
            for text, own in zip(texts, scores, strict=True)
        ]
        return torch.stack(results)

    return one_by_one
