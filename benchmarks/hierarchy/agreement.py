"""Measures how often each level accepts each other level's tokens, at every position of the target's answers.

With verification ``match`` a drafted token is accepted if both levels sample it with the shared noise. Under
``rejection`` its acceptance probability is 1 - (total variation of the two distributions). A retrieved token is
accepted if the verifier samples it (``match``), or with the verifier's probability (``rejection``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.decoding.drafters.hierarchy.draft_segment import LevelQuery, Path
from suffolk.serving.decoding.drafters.hierarchy.level import RunDistribution
from suffolk.serving.decoding.drafters.hierarchy.level_sampling import SamplerCache
from suffolk.serving.decoding.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.decoding.drafters.neural.coupled_sampling import contexts, needs_distributions
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.model.language_model import PREFILL_CHUNK
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import chain
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ModelVariant:
    """A model at one temperature. ``temperature``: None for the target's own."""

    name: str
    model: Target
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class TargetAnswer:
    """A prompt and the target's answer to it under ``settings``."""

    prompt: Ids
    generated: Ids
    settings: SamplingSettings

    def request(self, place: int) -> DraftRequest:
        """The draft request after ``place`` generated tokens."""
        tokens = np.concatenate([self.prompt, self.generated[:place]])
        return DraftRequest(0, tokens, 64, len(self.prompt), self.settings)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often model variants accept each other's tokens along one answer. The last variant is the target.

    Attributes:
        between: float64[variants, variants, n], acceptance, indexed by drafter, verifier and place in the answer.
        retrieved: for each source float64[variants, n, depth], acceptance of its drafts as in ``Starts``.
        found: for each source int64[n], number of tokens found at each place.
    """

    between: Floats
    retrieved: list[Floats]
    found: list[npt.NDArray[np.int64]]


@torch.inference_mode()
def measure_agreement(
    answer: TargetAnswer, variants: Sequence[ModelVariant], sources: Sequence[RetrievalLevel], depth: int
) -> Agreement:
    """Read the answer once with each model, and query each source for ``depth`` tokens at each place."""
    size = len(answer.generated)
    drafts = [_retrieve(answer, source, depth) for source in sources]
    by_distribution = needs_distributions(answer.settings)
    between = np.zeros((len(variants), len(variants), size))
    retrieved = [_unknown_acceptance(draft, len(variants), depth) for draft in drafts]
    rows = {id(variant.model): _logits(variant.model, answer) for variant in variants}
    common = min(each.shape[1] for each in rows.values())
    samplers = SamplerCache(answer.settings, common, next(iter(rows.values())).device)
    for place in range(size):
        behind = contexts(answer.request(place), [np.empty(0, np.int64)])
        outputs = []
        for variant in variants:
            sampler, row = samplers.at(variant.temperature), rows[id(variant.model)][place : place + 1, :common]
            outputs.append(
                sampler.probabilities(row, behind) if by_distribution else sampler.scores(row, behind).argmax(-1)
            )
        output = torch.cat(outputs)
        equal = _overlaps(output) if by_distribution else (output[:, None] == output[None]).double().cpu().numpy()
        between[:, :, place] = equal
        for draft, acceptance in zip(drafts, retrieved, strict=True):
            _set_acceptance(draft, acceptance, place, output, by_distribution, answer.generated)
    return Agreement(between, retrieved, [np.array([len(each) for each in draft], np.int64) for draft in drafts])


def _logits(model: Target, answer: TargetAnswer) -> torch.Tensor:
    """Return float[generated, vocab]: the logits after the prompt and after each generated token except the last."""
    tokens = np.concatenate([answer.prompt, answer.generated[:-1]]).astype(np.int64)
    cache = model.new_cache(1, len(tokens))
    begin, found = len(answer.prompt) - 1, []
    for start in range(0, len(tokens), PREFILL_CHUNK):
        part = chain(tokens[start : start + PREFILL_CHUNK])
        wanted = min(len(part), max(0, start + len(part) - begin))
        logits = model.forward(cache, [0], [part], [max(wanted, 1)]).logits
        cache.lengths[0] += len(part)
        found += [logits] if wanted else []
    return torch.cat(found)


def _retrieve(answer: TargetAnswer, source: RetrievalLevel, depth: int) -> list[Path]:
    """Return the chain that the source finds at each place of the answer."""
    found = []
    for place in range(len(answer.generated)):
        [segment] = source.answer([answer.request(place)], [LevelQuery(0, (), count=depth)])
        found.append(segment.tokens)
    for each in source.sources:
        each.release(0)
    return found


def _unknown_acceptance(draft: Sequence[Path], variants: int, depth: int) -> Floats:
    """Return float64[variants, n, depth]: NaN for each retrieved token, whose acceptance is unknown; 0 elsewhere."""
    acceptance = np.zeros((variants, len(draft), depth))
    for place, path in enumerate(draft):
        acceptance[:, place, : len(path)] = np.nan
    return acceptance


def _set_acceptance(
    draft: Sequence[Path], acceptance: Floats, place: int, output: torch.Tensor, by_distribution: bool, generated: Ids
) -> None:
    """Set each variant's acceptance of the tokens drafted at ``place``.

    A draft counts only if its earlier tokens match the answer.
    """
    for back in range(min(place + 1, acceptance.shape[2])):
        path = draft[place - back]
        if len(path) > back and path[:back] == tuple(generated[place - back : place].tolist()):
            token = path[back]
            if not by_distribution:
                values = output == token
            else:
                values = output[:, token] if token < output.shape[1] else torch.zeros(len(output))
            acceptance[:, place - back, back] = values.double().cpu().numpy()


def _overlaps(rows: torch.Tensor) -> Floats:
    """Return float64[variants, variants]: 1 - total variation for each pair of the distributions ``rows``."""
    return np.asarray(torch.stack([torch.minimum(row, rows).sum(-1) for row in rows]).cpu().numpy(), np.float64)


Floats = npt.NDArray[np.float64]
Starts = Floats
"""Acceptance of the drafts that one drafter could start at each place of a text: float64[n, depth].

Entry (s, k) belongs to token k of a draft from place s. It is the probability that this token is accepted if all earlier tokens
of the draft are. It is 0 after the end of a draft. It is NaN if unknown: after the end of the text, or where the text differs
from the draft.
"""


def model_starts(chances: Floats, depth: int) -> Starts:
    """Return the ``Starts`` of a model whose acceptance at each place is ``chances``.

    ``chances``: float64[n]; a model's acceptance does not depend on where a draft began.
    """
    padded = np.append(chances, np.full(depth - 1, np.nan))
    return np.lib.stride_tricks.sliding_window_view(padded, depth)


def round_weights(starts: Starts, longest: int) -> Floats:
    """Return float64[n]: the expected number of rounds that begin at each place.

    Drafts have up to ``longest`` tokens. If a round accepts n tokens, the next round begins n + 1 places later.
    """
    size = len(starts)
    weights = np.zeros(size + longest + 2)
    weights[0] = 1.0
    known = np.nan_to_num(starts[:, :longest], nan=0.0)
    reach = np.concatenate([np.ones((size, 1)), np.cumprod(known, axis=1)], axis=1)
    lengths = -np.diff(reach, axis=1, append=0.0)
    for place in range(size):
        weights[place + 1 : place + 1 + lengths.shape[1]] += weights[place] * lengths[place]
    return weights[:size]


def fit_run_distribution(drafter: str, verifier: str, texts: Sequence[Starts], longest: int) -> RunDistribution:
    """Estimate the distribution of the runs that ``verifier`` accepts from ``drafter``, in rounds of up to ``longest`` tokens.

    A run is the accepted tokens of one round. The estimate is a product of continuation rates (Kaplan and Meier 1958). The rate at
    a length is the weighted share that continues, of all runs that reach this length. A run cut off by the end of the text does
    not count as ended. Beyond the longest observed run the last rate applies.
    """
    depth = texts[0].shape[1]
    gone, came = np.zeros(depth), np.zeros(depth)
    for text in texts:
        reached = round_weights(text, longest)
        for place in range(depth):
            chance = text[:, place]
            known = ~np.isnan(chance)
            came[place] += reached[known].sum()
            reached = np.where(known, reached * np.nan_to_num(chance), 0.0)
            gone[place] += reached.sum()
    seen = came > 0
    hazards = np.divide(gone, came, out=np.zeros(depth), where=seen)
    if seen.any() and not seen.all():
        hazards[~seen] = hazards[seen][-1]
    reach = np.append(1.0, np.cumprod(np.clip(hazards, 0.0, 1.0)))
    lengths = np.append(reach[:-1] - reach[1:], reach[-1])
    return RunDistribution(drafter, verifier, tuple((lengths / lengths.sum()).tolist()))


def mean_acceptance(texts: Sequence[Starts]) -> float:
    """Return the share of places in the texts at which the first drafted token is accepted."""
    first = np.concatenate([text[:, 0] for text in texts])
    first = first[~np.isnan(first)]
    return float(first.mean()) if len(first) else 0.0
