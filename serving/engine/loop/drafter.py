"""What the decoding loop expects of whoever proposes drafts. The implementations live in serving/drafters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.loop.draft_budget import UNLIMITED, DraftBudget
from suffolk.serving.engine.sampling.settings import SamplingSettings

if TYPE_CHECKING:
    import torch

    from suffolk.serving.engine.model.kv_cache import KVCache

GREEDY = SamplingSettings()


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """One running request, as its drafter sees it.

    Attributes:
        request_id: the same number for the whole life of the request.
        tokens: int32[n], prompt and generated tokens so far; they cannot be written to.
        max_nodes: the largest tree that may be returned, 0 or more.
        prompt_tokens: how many of ``tokens`` are the prompt's.
        settings: how the target draws.
        slot: the request's place in the target's cache.
        budget: what the draft may cost, and what an accepted token is worth.
    """

    request_id: int
    tokens: npt.NDArray[np.int32]
    max_nodes: int
    prompt_tokens: int = 0
    settings: SamplingSettings = GREEDY
    slot: int = -1
    budget: DraftBudget = UNLIMITED

    @property
    def room(self) -> int:
        """How many drafted tokens in a row may still be accepted, 0 or more: the last of ``max_new_tokens`` is the target's."""
        return max(0, self.settings.max_new_tokens - (len(self.tokens) - self.prompt_tokens) - 1)


@dataclass(frozen=True, slots=True)
class SampledChain:
    """A chain of sampled tokens with the distributions they were sampled from, for verification ``rejection``.

    Verification ``match`` uses the tree alone. ``rejection`` is exact only if a token's place in the chain is decided before the
    token is sampled. A drafter may stop because of earlier tokens, but must not drop a sampled token. A chain may be cut by
    depth, not by its scores, because scores depend on the tokens.

    Attributes:
        tree: a chain: each node is the child of the one before it.
        distributions: float64[n, vocab], dense, on any device that holds data: the distribution of each node's token, after
            temperature, cuts and masks. Each row sums to 1. ``verify_chain`` checks the values.

    Raises:
        InvalidArgument: the tree is not a chain, or ``distributions`` is not dense, not of floating point, or not n rows.
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


def tree_of(proposal: Proposal) -> DraftTree:
    """The tree of a proposal, whichever it is."""
    return proposal.tree if isinstance(proposal, SampledChain) else proposal


class Drafter(Protocol):
    """Proposes trees for a batch of running requests and learns from what the target made of them.

    A tree's nodes are sorted by falling score, and a score is a calibrated probability that the node's whole path is
    accepted, so that the loop may keep any first part of a tree. A fault of the drafter's own (a service gone, a
    deadline missed) is counted inside and answered with an empty tree, never raised.
    """

    name: str

    def propose(self, requests: Sequence[DraftRequest]) -> Sequence[Proposal]:
        """One tree per request, in order; possibly empty, never more than the request's ``max_nodes`` nodes.

        A drafter that draws its tokens at random may return a ``SampledChain`` in place of a tree."""
        ...

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        """The target's own tokens that followed the context of the last ``propose`` (one or more), accepted or not."""
        ...

    def release(self, request_id: int) -> None:
        """The request has ended; forget it."""
        ...

    def stats(self) -> dict[str, float]:
        """Counters for reports: calls, "failed" (no draft because of a fault), "failed REASON", and what the drafter adds."""
        ...

    def close(self) -> None:
        """Give back connections and memory."""
        ...


@runtime_checkable
class FeatureDrafter(Drafter, Protocol):
    """A drafter that reads the target's hidden states, as ReDrafter and EAGLE do.

    Attributes:
        layers: whose hidden states it wants: 0 for the embedding, k for what leaves the k-th layer; the last as the output
            layer reads it. Rising; none for one that then gets no states.
    """

    layers: tuple[int, ...]

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        """float[k, layers, width]: the features of the request's next k tokens, on the target's device.

        They come from the prompt's first token on, in order and without gaps, also in steps in which nothing is proposed: before
        a ``propose`` those of all ``tokens`` but the last have come, which the target has not read yet. A drafter that cannot keep
        up (it has fewer) answers with an empty tree."""
        ...


@dataclass(frozen=True, slots=True)
class GeneratedLogits:
    """The logits from which the last k tokens of a request were sampled.

    Attributes:
        request_id: of the request; ``tokens``: int32[n], its text, prompt included, read-only.
        logits: float[k, vocab], on the target's device; gone after the call.
    """

    request_id: int
    tokens: npt.NDArray[np.int32]
    logits: torch.Tensor


@runtime_checkable
class LogitsDrafter(Drafter, Protocol):
    """A drafter that learns from the target's logits, as token recycling does.

    Attributes:
        reads_logits: whether it wants them.
    """

    reads_logits: bool

    def learn_logits(self, generated: Sequence[GeneratedLogits]) -> None:
        """One entry for each of its requests that got tokens in this step. Its time counts as drafting."""
        ...


@runtime_checkable
class CacheDrafter(Drafter, Protocol):
    """A drafter that reads the target's own keys and values, as early exit does."""

    def attach(self, cache: KVCache) -> None:
        """Called once, before anything is proposed. Rows behind a slot's length are free for whoever runs; ``lengths`` must be
        after ``propose`` what they were before. When it is asked, all tokens of a request but the last are cached in its slot."""
        ...


@runtime_checkable
class MixedDrafter(Drafter, Protocol):
    """A drafter with models and without: its models draft nothing where ``DraftBudget.model_seconds`` is 0, and their time is in
    ``stats`` as "model_seconds", without prefill.

    Attributes:
        model_sources: ``Source`` bits of its models; 0 if it has none.
    """

    model_sources: int


def only_from(tree: DraftTree, sources: int) -> npt.NDArray[np.bool_]:
    """bool[n], the nodes of ``tree`` that ``sources`` (``Source`` bits) proposed and no other source did."""
    bits = tree.sources.astype(np.uint32)
    return np.asarray((bits & np.uint32(sources) != 0) & (bits & ~np.uint32(sources) == 0), np.bool_)


def model_sources(drafter: Drafter) -> int:
    """``Source`` bits of the models that ``drafter`` may leave out; 0 if there are none."""
    return drafter.model_sources if isinstance(drafter, MixedDrafter) else 0


@runtime_checkable
class PrefetchingDrafter(Drafter, Protocol):
    """A drafter that wants to know what the target is about to verify, to prepare the next step's drafts meanwhile."""

    def prefetch(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> None:
        """The target now verifies ``trees``, possibly empty, behind ``requests``, which were all in the last ``propose``. Must
        return at once: what it takes is booked to the step."""
        ...
