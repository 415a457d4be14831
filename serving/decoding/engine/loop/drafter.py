"""The interfaces of drafters. The implementations live in serving/decoding/drafters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.costs.draft_budget import UNLIMITED, DraftBudget
from suffolk.serving.decoding.engine.loop.draft_options import DEFAULT_OPTIONS, DraftOptions
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

if TYPE_CHECKING:
    import torch

    from suffolk.serving.decoding.engine.model.kv_cache import KVCache

GREEDY = SamplingSettings()


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """One running request, as its drafter sees it.

    Attributes:
        request_id: constant while the request runs.
        tokens: int32[n], prompt and generated tokens so far, read-only.
        max_nodes: the most nodes of the draft, 0 or more.
        prompt_tokens: length of the prompt.
        settings: the request's sampling settings.
        slot: the request's slot in the target's cache.
        budget: limits of the draft, and the seconds that an accepted token saves.
        options: the request's draft options.
        prediction: int32[k], the tokens of the request's predicted text, read-only; None if there is no such text, or it is
            empty.
    """

    request_id: int
    tokens: npt.NDArray[np.int32]
    max_nodes: int
    prompt_tokens: int = 0
    settings: SamplingSettings = GREEDY
    slot: int = -1
    budget: DraftBudget = UNLIMITED
    options: DraftOptions = DEFAULT_OPTIONS
    prediction: npt.NDArray[np.int32] | None = None

    @property
    def room(self) -> int:
        """The most drafted tokens that may still be accepted, 0 or more. In the same step, the target adds one more token."""
        return max(0, self.settings.max_new_tokens - (len(self.tokens) - self.prompt_tokens) - 1)


@dataclass(frozen=True, slots=True)
class SampledChain:
    """A chain of tokens with the distributions from which they were sampled, for verification ``rejection``.

    Verification ``match`` uses only the tree. ``rejection`` is exact only if a token's place in the chain is decided before the
    token is sampled. A drafter may stop because of earlier tokens, but must not drop a sampled token. A chain may be cut at
    a depth, but not by its scores, because scores depend on the tokens.

    Attributes:
        tree: a chain, in which each node is the child of the node before it.
        distributions: float64[n, vocab], the distribution of each node's token, after temperature, top-k, top-p, min-p and
            masks. A dense tensor, on any device except "meta". Each row sums to 1 (checked by ``rejection.verify_chain``).

    Raises:
        InvalidArgument: the tree is not a chain, or ``distributions`` is not a dense tensor of floating-point numbers with n
            rows.
    """

    tree: DraftTree
    distributions: torch.Tensor

    def __post_init__(self) -> None:
        import torch  # importers of this module without sampled chains need no torch

        size, rows = len(self.tree), self.distributions
        if not np.array_equal(self.tree.parents, np.arange(-1, size - 1)):
            raise InvalidArgument(
                f"sampled chain: parents are {self.tree.parents.tolist()}; each must be the node before"
            )
        if not isinstance(rows, torch.Tensor):
            raise InvalidArgument(
                f"sampled chain: distributions is of type {type(rows).__name__}; it must be a torch.Tensor"
            )
        is_dense = rows.layout == torch.strided and not rows.is_nested and not rows.is_meta
        if not (is_dense and rows.dtype.is_floating_point):
            raise InvalidArgument(
                f"sampled chain: distributions is a tensor of {rows.dtype} with layout {rows.layout} on {rows.device}; it must "
                "be dense, of float64, and on a device that holds data"
            )
        if rows.ndim != 2 or len(rows) != size:
            raise InvalidArgument(
                f"sampled chain: distributions has shape {tuple(rows.shape)}; {size} nodes need {size} rows of probabilities"
            )


Proposal = DraftTree | SampledChain
Generated = Mapping[int, npt.NDArray[np.int32]]
"""New tokens of requests, by request id."""


def tree_of(proposal: Proposal) -> DraftTree:
    """The tree of a proposal, which is a tree or a ``SampledChain``."""
    return proposal.tree if isinstance(proposal, SampledChain) else proposal


class Drafter(Protocol):
    """Proposes draft trees for a batch of running requests, and learns from the tokens that the target generates.

    A score is the calibrated probability that the node's whole path is accepted. Nodes are sorted by falling score, so the loop
    may keep only the first nodes of a tree. A drafter does not raise for its own failures, such as a lost connection or a late
    reply. It counts them and returns an empty tree.
    """

    name: str

    def propose(self, requests: Sequence[DraftRequest]) -> Sequence[Proposal]:
        """One tree per request, in order, each of 0 to ``max_nodes`` nodes.

        A drafter that samples its tokens may return a ``SampledChain`` instead of a tree.
        """
        ...

    def observe(self, generated: Generated) -> None:
        """Learn the tokens that were generated after the contexts of the last ``propose``, one or more for each request."""
        ...

    def release(self, request_id: int) -> None:
        """Forget a request that has ended."""
        ...

    def stats(self) -> dict[str, float]:
        """Counters for reports: "calls", "failed" (drafts lost to an error), "failed REASON", and others of the drafter."""
        ...

    def close(self) -> None:
        """Release connections and memory."""
        ...


@runtime_checkable
class FeatureDrafter(Drafter, Protocol):
    """A drafter that reads the target's hidden states, as ReDrafter and EAGLE do.

    Attributes:
        layers: the layers to read, rising: 0 for the embedding, k for the output of layer k. The last layer's output is
            normalised, as the output layer reads it. Empty if the drafter reads no layers.
    """

    layers: tuple[int, ...]

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        """Receive ``features``, float[k, layers, width], of the request's next k tokens, on the target's device.

        Features come in order and without gaps from the prompt's first token on, even in steps without a draft. When
        ``propose`` is called, the features of all ``tokens`` except the last have arrived. The target has not read the last
        token yet. A drafter with fewer features returns an empty tree.
        """
        ...


@dataclass(frozen=True, slots=True)
class GeneratedLogits:
    """The logits from which the last k tokens of a request were sampled.

    Attributes:
        request_id: the number of the request.
        tokens: int32[n], prompt and generated tokens, read-only.
        logits: float[k, vocab], on the target's device; valid during the call only.
    """

    request_id: int
    tokens: npt.NDArray[np.int32]
    logits: torch.Tensor


@runtime_checkable
class LogitsDrafter(Drafter, Protocol):
    """A drafter that learns from the target's logits, as token recycling does.

    Attributes:
        reads_logits: whether ``learn_logits`` is to be called.
    """

    reads_logits: bool

    def learn_logits(self, generated: Sequence[GeneratedLogits]) -> None:
        """Learn from this step. The time of the call counts as drafting.

        ``generated`` has an entry for each request of the drafter that got tokens.
        """
        ...


@runtime_checkable
class CacheDrafter(Drafter, Protocol):
    """A drafter that reads the target's own keys and values, as early exit does."""

    def attach(self, cache: KVCache) -> None:
        """Receive the target's cache, once, before the first ``propose``.

        At each ``propose``, a slot holds all tokens of its request except the last. The drafter may write the rows after a
        slot's length. It must leave ``lengths`` unchanged.
        """
        ...


@runtime_checkable
class MixedDrafter(Drafter, Protocol):
    """A drafter that can draft with or without its models.

    If ``DraftBudget.model_seconds`` is 0, its models do not draft. ``stats`` reports the time of the models, without prefill, as
    "model_seconds".

    Attributes:
        model_sources: source bits of its models; 0 if it has none.
    """

    model_sources: int


def only_from(tree: DraftTree, sources: int) -> npt.NDArray[np.bool_] | None:
    """bool[n], the nodes of ``tree`` that only ``sources`` (source bits) proposed; None for no sources."""
    if not sources:
        return None
    bits = tree.sources.astype(np.uint32)
    return np.asarray((bits & np.uint32(sources) != 0) & (bits & ~np.uint32(sources) == 0), np.bool_)


def model_sources(drafter: Drafter) -> int:
    """Source bits of the models that ``drafter`` may leave out; 0 if there are none."""
    return drafter.model_sources if isinstance(drafter, MixedDrafter) else 0


@runtime_checkable
class PrefetchingDrafter(Drafter, Protocol):
    """A drafter that prepares the drafts of the next step while the target verifies the drafts of this step.

    It may have an attribute ``prefetches``: whether ``prefetch`` is to be called in this step.
    """

    def prefetch(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> None:
        """Start to prepare the next drafts, and return immediately, because the time of the call counts as drafting.

        ``requests``: requests of the last ``propose``. ``trees``: for each request the tree that the
        target is verifying, possibly empty.
        """
        ...


@runtime_checkable
class DatastoreReader(Drafter, Protocol):
    """A drafter that searches datastores: for each request, those that ``DraftRequest.options`` selects.

    Attributes:
        datastores: their names.
    """

    datastores: tuple[str, ...]


def prefetches(drafter: PrefetchingDrafter | None) -> bool:
    """Whether ``prefetch`` of ``drafter`` is to be called in this step; False without a drafter."""
    return drafter is not None and bool(getattr(drafter, "prefetches", True))


def datastore_names(drafter: Drafter) -> tuple[str, ...]:
    """The names of the datastores that ``drafter`` searches; none if it searches none."""
    return drafter.datastores if isinstance(drafter, DatastoreReader) else ()
