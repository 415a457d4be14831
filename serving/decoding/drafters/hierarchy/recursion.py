"""Hierarchical speculative decoding for one request: each level verifies the draft of the level below.

The recursion yields a query for every pass, so that requests can share passes (``LevelBatcher``).

Source: "Fast Inference via Hierarchical Speculative Decoding", section 2.3, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.confidence import CHAIN_PRIOR, Confidence
from suffolk.serving.decoding.drafters.hierarchy.draft_segment import (
    EMPTY_SEGMENT,
    DraftSegment,
    Floats,
    LevelQuery,
    LevelReply,
    Path,
)
from suffolk.serving.decoding.drafters.hierarchy.level_sampling import (
    FreshUniforms,
    SamplerCache,
    match_draft,
    speculative_sample,
)
from suffolk.serving.decoding.drafters.hierarchy.model_level import ModelLevel
from suffolk.serving.decoding.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.decoding.drafters.neural.coupled_sampling import needs_distributions
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Proposal, SampledChain
from suffolk.serving.decoding.engine.policy.acceptance_model import Estimate
from suffolk.serving.decoding.engine.policy.constants import MEMORY, SHARE_PRIOR
from suffolk.serving.decoding.engine.policy.expansion_policy import saved_share
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings


class SegmentCalibrator:
    """Calibrates segments, and learns from what the target accepts. Not thread-safe.

    The scores of sampled tokens depend only on their depth, as ``SampledChain`` requires.
    """

    def __init__(self, retrieval: bool) -> None:
        """``retrieval``: whether the top level is retrieval. Its probabilities are already calibrated."""
        self._retrieval = retrieval
        self._by_prob, self._by_depth = Confidence(), Confidence()

    def scores(self, segment: DraftSegment, settings: SamplingSettings) -> Floats:
        """float64[n], the probability that each token is accepted with all tokens before it."""
        chances = segment.draft_probs
        if not self._retrieval:
            depths = np.arange(1, len(segment) + 1)
            chances = self._confidence(settings).chances(_probs(segment, settings), depths, settings.temperature > 0)
        return np.asarray(np.cumprod(np.clip(chances, 0.0, 1.0)), np.float64)

    def proposal(self, segment: DraftSegment, settings: SamplingSettings, source: int) -> Proposal:
        """The draft for the target: ``segment`` as a chain, marked with the bits ``source``."""
        size = len(segment)
        tree = DraftTree(
            np.asarray(segment.tokens, np.int32),
            np.arange(-1, size - 1, dtype=np.int32),
            self.scores(segment, settings).astype(np.float32),
            np.full(size, source, np.uint32),
        )
        return tree if segment.distribution is None or not size else SampledChain(tree, segment.distribution)

    def learn(self, segment: DraftSegment, settings: SamplingSettings, tokens: npt.NDArray[np.int32]) -> int:
        """Learn from the ``tokens`` generated after ``segment`` was drafted. Returns the number of accepted tokens."""
        looked = min(len(segment), len(tokens))
        agree = np.asarray(segment.tokens[:looked]) == tokens[:looked]
        accepted = looked if agree.all() else int(np.argmin(agree))
        seen = min(accepted + 1, looked)
        if seen and not self._retrieval:
            probs, depths = _probs(segment, settings)[:seen], np.arange(1, seen + 1)
            self._confidence(settings).learn(probs, depths, settings.temperature > 0, agree[:seen])
        return accepted

    def _confidence(self, settings: SamplingSettings) -> Confidence:
        return self._by_depth if needs_distributions(settings) else self._by_prob


def _probs(segment: DraftSegment, settings: SamplingSettings) -> Floats:
    return np.full(len(segment), CHAIN_PRIOR) if needs_distributions(settings) else segment.draft_probs


StackedLevel = RetrievalLevel | ModelLevel
LevelQueries = Generator[LevelQuery, LevelReply, DraftSegment]


class RoundPolicy:
    """Compares the expected tokens of a further round with its time. In a round, the top level verifies a draft of the level below.
    The policy learns tokens and times while decoding. Not thread-safe."""

    def __init__(self, costs: list[CostModel]) -> None:
        """``costs``: costs of the passes, for each level that is a model."""
        self._costs = costs
        self._acceptance = Estimate(SHARE_PRIOR)
        self._seconds = self._tokens = self._rounds = 0.0

    def pays(self, value: float, value_seconds: float) -> bool:
        """Whether one more round is worth its time. ``value``: probability that all tokens drafted so far are accepted."""
        if not value_seconds or not self._rounds:
            return True
        share, length = self._acceptance.value, self._tokens / self._rounds
        gain = share * (1 - share**length) / (1 - share) if share < 1 else length
        return value * gain * value_seconds >= self._seconds / self._rounds

    def learn_rounds(self, rounds: int, tokens: int, seconds: float) -> None:
        """Learn that ``rounds`` rounds of the top level, over all requests, took ``seconds`` and drafted ``tokens``."""
        self._rounds = MEMORY * self._rounds + rounds
        self._tokens = MEMORY * self._tokens + tokens
        self._seconds = MEMORY * self._seconds + seconds

    def learn(self, accepted: int, drafted: int) -> None:
        """Learn that the target accepted ``accepted`` of ``drafted`` tokens. Tokens after the first rejected token do not
        count."""
        self._acceptance.add(accepted, min(drafted, accepted + 1))

    def saving(self, depth: int, budget: DraftBudget, requests: int, context: int) -> float:
        """The share of decoding time that drafts of ``depth`` tokens are expected to save; 1 if times are not known."""
        if not budget.token_seconds:
            return 1.0
        taken = self._seconds / self._rounds if self._rounds else 0.0
        taken = taken or sum(each.time(requests, requests, float(context)) for each in self._costs) / requests
        seconds = taken + depth * budget.row_seconds
        accepted = np.cumsum(self._acceptance.value ** np.arange(1, depth + 1))[-1:]
        return saved_share(accepted, seconds / budget.token_seconds, budget)

    def prefill_seconds(self, tokens: int) -> float:
        """Expected seconds to prefill ``tokens`` tokens in all levels."""
        return sum(each.time(tokens, 1, tokens / 2) for each in self._costs)


class StackState:
    """The state of a request, from its first draft on. Not thread-safe.

    Attributes:
        slot: its slot in the caches of all levels.
        request: the request of the last ``begin``.
        room: the most tokens of a draft.
        samplers: the samplers of its levels; None until the first use.
        uniforms: the random streams of its levels; None until the first use.
        rounds: rounds of the top level in this step.
        segment: the top level's draft in this step.
        is_cut: whether the draft of this step ended at NaN logits.
    """

    request: DraftRequest

    def __init__(self, slot: int, levels: int) -> None:
        self.slot = slot
        self.samplers: SamplerCache | None = None
        self.uniforms: list[FreshUniforms | None] = [None] * levels
        self.room = self.rounds = 0
        self.segment = EMPTY_SEGMENT
        self.is_cut = False

    def begin(self, request: DraftRequest) -> None:
        """Begin a step."""
        self.request, self.room = request, min(request.max_nodes, request.room)
        self.rounds, self.segment, self.is_cut = 0, EMPTY_SEGMENT, False


class Recursion:
    """The levels of a stack, from the bottom up. Not thread-safe.

    Attributes:
        common_vocab: the number of ids that all levels can read and draft.
    """

    def __init__(
        self,
        levels: Sequence[StackedLevel],
        vocab_size: int,
        eos_ids: frozenset[int],
        calibrator: SegmentCalibrator,
        policy: RoundPolicy | None,
    ) -> None:
        """
        Args:
            vocab_size: the target's.
            eos_ids: the target's tokens that end a text.
            policy: decides whether a further round is worth its time; None to make all rounds.
        """
        self._levels, self._vocab_size, self._eos_ids = levels, vocab_size, eos_ids
        self._calibrator, self._policy = calibrator, policy
        models = [level.model.vocab_size for level in levels if isinstance(level, ModelLevel)]
        self.common_vocab = min(vocab_size, *models) if models else vocab_size

    def draft(self, state: StackState) -> LevelQueries:
        """The top level's draft for the target, of at most ``state.room`` tokens."""
        return (yield from self._draft_level(state, len(self._levels) - 1, ()))

    def _draft_level(self, state: StackState, at: int, path: Path) -> LevelQueries:
        """The draft of level ``at`` after ``path``: ``level.tokens`` or more; fewer if the text ends or a pass is not made."""
        level, room = self._levels[at], state.room - len(path)
        if isinstance(level, RetrievalLevel):
            retrieved = yield LevelQuery(at, path, count=min(level.tokens, room))
            assert isinstance(retrieved, DraftSegment)
            unknown = np.flatnonzero(np.asarray(retrieved.tokens) >= self.common_vocab)
            return retrieved.head(min(room, int(unknown[0])) if len(unknown) else room)
        segment = EMPTY_SEGMENT
        is_top = at == len(self._levels) - 1
        while len(segment) < min(level.tokens, room):
            if is_top and len(segment) and not self._goes_on(state, segment):
                break
            here = path + segment.tokens
            draft = (yield from self._draft_level(state, at - 1, here)) if at else EMPTY_SEGMENT
            logits = yield LevelQuery(at, here, draft.tokens)
            if logits is None:
                break
            assert isinstance(logits, torch.Tensor)
            verified = self._verify(state, at, here, draft, logits[:, : self.common_vocab])
            state.is_cut |= verified.is_cut
            state.rounds += is_top
            ends = [place for place, token in enumerate(verified.tokens) if self._is_end(state, token)]
            segment += verified.head(ends[0] + 1) if ends else verified  # tokens after an end are dropped
            if ends or not len(verified):
                break
        return segment.head(room)

    def _verify(
        self, state: StackState, at: int, path: Path, draft: DraftSegment, logits: torch.Tensor
    ) -> DraftSegment:
        level, settings = self._levels[at], state.request.settings
        assert isinstance(level, ModelLevel)
        if state.samplers is None:
            state.samplers = SamplerCache(settings, self.common_vocab, logits.device)
        sampler = state.samplers.at(level.temperature)
        if not needs_distributions(settings):
            return match_draft(sampler, state.request, path, draft, logits)
        uniforms = state.uniforms[at]
        if uniforms is None:
            uniforms = state.uniforms[at] = FreshUniforms(settings.seed, at + 1, logits.device)
        return speculative_sample(sampler, uniforms, state.request, path, draft, logits, self._vocab_size)

    def _goes_on(self, state: StackState, segment: DraftSegment) -> bool:
        """Whether the top level should make another round after ``segment``."""
        if self._policy is None:
            return True
        value = float(self._calibrator.scores(segment, state.request.settings)[-1])
        return self._policy.pays(value, state.request.budget.value_seconds)

    def _is_end(self, state: StackState, token: int) -> bool:
        return token in self._eos_ids and not state.request.settings.ignore_eos
