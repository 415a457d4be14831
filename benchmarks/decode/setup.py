"""Prepares decoding measurements: the model, the datastores, the prompts, and the drafters."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from suffolk.benchmarks.decode.bounding_drafters import RECORDED, USELESS, RecordedDrafter, UselessDrafter
from suffolk.benchmarks.decode.options import LIMITS, PLAIN, DecodingOptions
from suffolk.benchmarks.prompts import Prompt, encode_prompt, load_prompts
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import Retriever
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.decoding.drafters.load import load_drafters, make_drafter
from suffolk.serving.decoding.drafters.neural.tree_bounds import rows_behind
from suffolk.serving.decoding.drafters.registry import find
from suffolk.serving.decoding.drafters.retrieval.limits import require_match
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest, Proposal
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.target_loader import silence_transformers
from suffolk.serving.net.messages.choices import merge_urls
from suffolk.serving.net.url import is_remote
from suffolk.serving.open_store import connect_any

Encoded: TypeAlias = list[tuple[Prompt, list[int]]]
"""Prompts and their token ids."""


def require_drafters(
    options: DecodingOptions, retrievers: list[Retriever], bounding: Sequence[str] = (USELESS,)
) -> None:
    """Raise InvalidArgument if a drafter's name is unknown, or if a drafter's datastore or network is missing.

    ``bounding``: names of further drafters that the measurement can use, which are not in the registry.
    """
    kinds = options.models.parts()
    for name in options.drafters:
        if name not in bounding and name not in kinds and not (name == "hybrid" and kinds):
            if name != PLAIN:
                find(name, bounding)
            make_drafter(name, 1, retrievers, LIMITS)


def make_drafters(
    options: DecodingOptions, target: Target, retrievers: list[Retriever], slots: int, capacity: int
) -> dict[str, Drafter]:
    """Create the drafters to measure, by name, for one engine with ``slots`` and ``capacity``. They share models.

    Raises the InvalidArgument of ``require_drafters``, and the errors of ``load_drafters``.
    """
    models = load_drafters(target, options.models, slots, capacity, retrievers, LIMITS)
    made = {name: _make(name, options, target, retrievers, models) for name in options.drafters}
    return {name: drafter for name, drafter in made.items() if drafter is not None}


def make_lone_drafter(
    name: str, options: DecodingOptions, target: Target, retrievers: list[Retriever], capacity: int
) -> Drafter | None:
    """Create one drafter for a separate engine with one slot. Return None for "none". The drafter shares no model.

    Raises the errors of ``make_drafters``.
    """
    kinds = options.models.parts()
    models: list[Drafter] = []
    if name in kinds or (name not in (PLAIN, USELESS, RECORDED) and find(name).source_id is None):
        only = name if name in kinds else None  # a drafter without a source of its own merges all models
        models = load_drafters(target, options.models, 1, capacity, retrievers, LIMITS, only=only)
    return _make(name, options, target, retrievers, models)


def _make(
    name: str, options: DecodingOptions, target: Target, retrievers: list[Retriever], models: list[Drafter]
) -> Drafter | None:
    drafter: Drafter | None
    if name == USELESS:
        drafter = UselessDrafter(target.vocab_size)
    elif name == RECORDED:
        drafter = RecordedDrafter()
    else:
        drafter = make_drafter(name, target.vocab_size, retrievers, LIMITS, models)
    if drafter is not None and options.slowed:
        slow_down(drafter, options.slowed / 1e3)
    return drafter


@contextlib.contextmanager
def opened_datastores(options: DecodingOptions) -> Iterator[list[Retriever]]:
    """Yield the open datastores, checked against the model. They are closed at the end of the block."""
    with contextlib.ExitStack() as stack:
        retrievers: list[Retriever] = []
        for name in merge_urls(options.datastores):
            retrievers.append(connect_any(name) if is_remote(name) else open_datastore(name, "warm"))
            stack.callback(retrievers[-1].close)
            require_match(retrievers[-1], name, LIMITS, options.model, fingerprint(load_tokenizer(options.model)))
        yield retrievers


def load_target(options: DecodingOptions) -> Target:
    silence_transformers()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    return Target.load(options.model, options.dtype, options.device, exact=options.exact)


def encode_prompts(
    target: Target, prompts: list[Prompt], options: DecodingOptions
) -> tuple[Encoded, list[dict[str, Any]]]:
    """Encode the prompts that leave room for a whole answer. Return the encoded and the skipped prompts."""
    encoded: Encoded = []
    skipped: list[dict[str, Any]] = []
    for prompt in prompts:
        ids = encode_prompt(prompt, target.tokenizer, options.model)
        if target.context_length is not None and len(ids) + options.max_new_tokens > target.context_length:
            skipped.append({"prompt": prompt.name, "group": prompt.group, "tokens": len(ids)})
        else:
            encoded.append((prompt, ids))
    if not encoded:
        raise InvalidArgument(f"no prompt leaves room for {options.max_new_tokens} tokens; lower --max-new-tokens")
    return encoded, skipped


def capacity_for(encoded: Encoded, options: DecodingOptions) -> int:
    """The most tokens of a request: the longest prompt, its answer, and the largest tree."""
    return max(len(ids) for _, ids in encoded) + options.max_new_tokens + rows_behind(options.max_nodes)


@dataclass(frozen=True, slots=True)
class OpenedEngine:
    """An engine with the drafters of a measurement, and the prompts.

    Attributes:
        encoded: the prompts that fit.
        skipped: the prompts that do not fit.
        costs_source: where the engine's costs are from.
    """

    engine: Engine
    encoded: Encoded
    skipped: list[dict[str, Any]]
    costs_source: str


@contextlib.contextmanager
def opened_engine(options: DecodingOptions, slots: int, queue: int, prefix_reuse: bool) -> Iterator[OpenedEngine]:
    """Yield an engine with ``slots`` for the prompts and drafters of ``options``. ``queue``, ``prefix_reuse``: as in ``Engine``.

    Raises:
        NotFound, Unsupported: the model, datastore or prompts are missing or do not fit together.
    """
    prompts = load_prompts(options.prompts, options.style, options.limit, options.seed)
    with opened_datastores(options) as retrievers:
        require_drafters(options, retrievers)  # report missing parts before a model is loaded
        target = load_target(options)
        encoded, skipped = encode_prompts(target, prompts, options)
        capacity = capacity_for(encoded, options)
        drafters = make_drafters(options, target, retrievers, slots, capacity)
        found = find_costs(target, slots, options.costs)
        with Engine(target, drafters, found.costs, slots, capacity, queue, prefix_reuse=prefix_reuse) as engine:
            yield OpenedEngine(engine, encoded, skipped, found.source)


def target_facts(target: Target) -> dict[str, Any]:
    """Data type, device and threads of ``target``, for a report."""
    return {
        "dtype": str(target.dtype),
        "same_bits": target.same_bits,
        "device": str(target.device),
        "cpu_threads": torch.get_num_threads(),
    }


def seconds_by_rows(costs: CostModel) -> dict[int, float]:
    """Map each measured number of rows to the seconds of a pass over so many rows, without a context."""
    return dict(zip(costs.sizes.astype(int).tolist(), costs.times(costs.sizes, 1, 0.0).tolist(), strict=True))


def slow_down(drafter: Drafter, seconds: float) -> None:
    """Adds ``seconds`` to every draft call."""
    propose = drafter.propose

    def proposing(requests: Sequence[DraftRequest]) -> Sequence[Proposal]:
        time.sleep(seconds)
        return propose(requests)

    setattr(drafter, "propose", proposing)  # noqa: B010 - a wrapper would hide what else the drafter can do
