"""Shared state of the ``generate`` calls of one model: checked target, measured costs and drafter."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

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


class _Sessions(dict[Any, "Session"]):
    """The sessions of a model, stored as an attribute. Copies and pickles of the model start without sessions."""

    def __reduce__(self) -> tuple[type[_Sessions], tuple[()]]:
        return _Sessions, ()

    def __deepcopy__(self, memo: Any) -> _Sessions:
        return _Sessions()


def find_session(model: Any, datastore: str | Path | None, drafter: str) -> Session:
    """Return the session of ``model`` with this datastore and drafter. The first call opens it. Thread-safe.

    Raises as ``generate``.
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
        """Check the model, open the datastore and measure the model's passes. Raises as ``generate``."""
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
