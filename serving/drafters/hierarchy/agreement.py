"""How acceptable one level's tokens are to another, place by place, along texts that the target wrote.

Under ``match`` a level's token is accepted where both draw the same with the shared noise, at temperature 0 where the best tokens
are the same; under ``rejection`` with probability 1 - (total variation of the two laws). A retrieved token is accepted where the
verifier draws it, or with its probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.drafters.hierarchy.draft_segment import Ask, Path
from suffolk.serving.drafters.hierarchy.drawing import Samplers
from suffolk.serving.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.drafters.hierarchy.run_laws import Floats, Starts
from suffolk.serving.drafters.neural.coupled_sampling import contexts
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.model.tree_layout import chain
from suffolk.serving.engine.policy.prefill_budget import PREFILL_CHUNK
from suffolk.serving.engine.sampling.settings import SamplingSettings

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Voice:
    """A model at one temperature. ``temperature``: None for the target's own."""

    name: str
    model: Target
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class WrittenText:
    """A prompt and what the target wrote behind it, under ``settings``."""

    prompt: Ids
    written: Ids
    settings: SamplingSettings

    def request(self, place: int, number: int = 0) -> DraftRequest:
        """As a drafter sees it once ``place`` tokens are written."""
        tokens = np.concatenate([self.prompt, self.written[:place]])
        return DraftRequest(number, tokens, 64, len(self.prompt), self.settings)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of one text, by numbers of voices, the last being the target.

    Attributes:
        between: float64[voices, voices, n], drafter by verifier at each place.
        retrieved: for each source float64[voices, n, depth], as in ``Starts``; ``found``: int64[n], tokens that were found at each
            place.
    """

    between: Floats
    retrieved: list[Floats]
    found: list[npt.NDArray[np.int64]]


def starts_of(agreement: Agreement, drafter: int, verifier: int, depth: int) -> Starts:
    """Of two voices, by number."""
    return Starts.of_model(agreement.between[drafter, verifier], depth)


@torch.inference_mode()
def agree(text: WrittenText, voices: Sequence[Voice], sources: Sequence[RetrievalLevel], depth: int) -> Agreement:
    """Reads the text once with each model, and asks each source behind each of its tokens for up to ``depth``."""
    size = len(text.written)
    drafts = [_retrieve(text, source, depth) for source in sources]
    is_drawn = text.settings.temperature > 0 and text.settings.verification == "rejection"
    between = np.zeros((len(voices), len(voices), size))
    retrieved = [_untold(draft, len(voices), depth) for draft in drafts]
    rows = {id(voice.model): _logits(voice.model, text) for voice in voices}
    common = min(each.shape[1] for each in rows.values())
    samplers = Samplers(text.settings, common, next(iter(rows.values())).device)
    for place in range(size):
        behind = contexts(text.request(place), [np.empty(0, np.int64)])
        told = []
        for voice in voices:
            sampler, row = samplers.at(voice.temperature), rows[id(voice.model)][place : place + 1, :common]
            told.append(sampler.probabilities(row, behind) if is_drawn else sampler.scores(row, behind).argmax(-1))
        both = torch.cat(told)
        between[:, :, place] = _overlaps(both) if is_drawn else (both[:, None] == both[None]).double().cpu().numpy()
        for draft, chances in zip(drafts, retrieved, strict=True):
            _judge(draft, chances, place, both, is_drawn, text.written)
    return Agreement(between, retrieved, [np.array([len(each) for each in draft], np.int64) for draft in drafts])


def _logits(model: Target, text: WrittenText) -> torch.Tensor:
    """float[written, vocab], behind the prompt and behind each written token but the last."""
    tokens = np.concatenate([text.prompt, text.written[:-1]]).astype(np.int64)
    cache = model.new_cache(1, len(tokens))
    begin, found = len(text.prompt) - 1, []
    for start in range(0, len(tokens), PREFILL_CHUNK):
        part = chain(tokens[start : start + PREFILL_CHUNK])
        wanted = min(len(part), max(0, start + len(part) - begin))
        logits = model.forward(cache, [0], [part], [max(wanted, 1)]).logits
        cache.lengths[0] += len(part)
        found += [logits] if wanted else []
    return torch.cat(found)


def _retrieve(text: WrittenText, source: RetrievalLevel, depth: int) -> list[Path]:
    """The chain found at each place of the text."""
    found = []
    for place in range(len(text.written)):
        [handed] = source.answer([text.request(place)], [Ask(0, (), count=depth)])
        found.append(handed.tokens)
    for each in source.sources:
        each.release(0)
    return found


def _untold(draft: Sequence[Path], voices: int, depth: int) -> Floats:
    """NaN where a token was found, 0 where there was none."""
    chances = np.zeros((voices, len(draft), depth))
    for place, path in enumerate(draft):
        chances[:, place, : len(path)] = np.nan
    return chances


def _judge(
    draft: Sequence[Path], chances: Floats, place: int, told: torch.Tensor, is_drawn: bool, written: Ids
) -> None:
    """Set what all voices make of the tokens drafted for ``place``, of drafts that the text has followed up to there."""
    for back in range(min(place + 1, chances.shape[2])):
        path = draft[place - back]
        if len(path) > back and path[:back] == tuple(written[place - back : place].tolist()):
            token = path[back]
            is_known = token < told.shape[1] if is_drawn else True
            values = (told[:, token] if is_known else torch.zeros(len(told))) if is_drawn else told == token
            chances[:, place - back, back] = values.double().cpu().numpy()


def _overlaps(laws: torch.Tensor) -> Floats:
    """float64[voices, voices], 1 - total variation."""
    return np.asarray(torch.stack([torch.minimum(law, laws).sum(-1) for law in laws]).cpu().numpy(), np.float64)
