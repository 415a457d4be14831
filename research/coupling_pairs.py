"""Makes pairs of targets and drafters to compare at one node, from synthetic logits or models' logits on prompts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from suffolk.benchmarks.prompts import encode_prompt, load_prompts
from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.decoding.engine.model.target import Target

NOISES = (0.5, 1.0, 2.0)
"""Standard deviations of the noise that turns a target's logits into a drafter's."""

FLATTENED = 0.7
SPREADS = (2.0, 5.0)
"""Standard deviations of synthetic logits, from nearly flat to nearly certain distributions."""


@dataclass(frozen=True, slots=True)
class CouplingOptions:
    """Settings of the measurement. Checked when made.

    Attributes:
        contexts: number of nodes to compare, for each drafter.
        draws: noise samples at each node.
        vocab: vocabulary size of synthetic targets.
        model: folder or hub name of a target; None for synthetic ones.
        drafter: folder or hub name of a drafter with the same tokenizer; None for noisy copies of the target.
        prompts: .jsonl files with prompts for the models.
        limit: prompts of each file; None for all.
        dtype: as in ``Target.load``.
        seed: of every random choice.

    Raises:
        InvalidArgument: a number is too small, a drafter or prompts have no model, or a model has no prompts.
    """

    contexts: int = 300
    draws: int = 200
    vocab: int = 1000
    model: str | None = None
    drafter: str | None = None
    prompts: tuple[Path, ...] = ()
    limit: int | None = 4
    dtype: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("contexts", 2), ("draws", 1), ("vocab", 8), ("seed", 0)):
            if getattr(self, name) < least:
                raise InvalidArgument(f"{name} is {getattr(self, name)}; it must be {least} or more")
        if (self.model is None) != (not self.prompts) or (self.drafter is not None and self.model is None):
            raise InvalidArgument("a model needs prompts, and prompts need a model; a drafter needs both")


def logits_by_context(options: CouplingOptions) -> Iterator[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
    """Yield for each context float64[vocab] logits of the target, and of each drafter by name.

    Raises:
        Unsupported: the drafter's tokenizer is not the target's.
    """
    rng = np.random.default_rng(options.seed)
    if options.model is None:
        for spread in rng.uniform(*SPREADS, options.contexts):
            target = torch.from_numpy(rng.normal(0, spread, options.vocab))
            yield target, _copies(target, rng)
        return
    target_model = Target.load(options.model, options.dtype)
    texts = _texts(target_model, options)
    places = [(number, place) for number, text in enumerate(texts) for place in range(len(text))]
    chosen = [places[each] for each in sorted(rng.permutation(len(places))[: options.contexts].tolist())]
    target_rows = _rows(target_model, texts, chosen)
    if options.drafter is None:
        for row in target_rows:
            yield row.double(), _copies(row.double(), rng)
        return
    drafter_model = Target.load(options.drafter, options.dtype)
    if drafter_model.tokenizer.get_vocab() != target_model.tokenizer.get_vocab():
        raise Unsupported(
            f"{options.drafter} and {options.model} have different tokenizers; use two models of one family"
        )
    for row, drafted in zip(target_rows, _rows(drafter_model, texts, chosen), strict=True):
        size = min(len(row), len(drafted))
        yield row[:size].double(), {drafter_model.name: drafted[:size].double()}


def _copies(target: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    noise = torch.from_numpy(rng.normal(0, 1, len(target)))
    copies = {f"noise {level:g}": target + level * noise for level in NOISES}
    return copies | {f"noise 1, flattened to {FLATTENED:g}": FLATTENED * (target + noise)}


def _texts(target: Target, options: CouplingOptions) -> list[list[int]]:
    prompts = load_prompts(options.prompts, "chat", options.limit, options.seed)
    return [encode_prompt(prompt, target.tokenizer, target.name) for prompt in prompts]


@torch.inference_mode()
def _rows(target: Target, texts: list[list[int]], chosen: list[tuple[int, int]]) -> list[torch.Tensor]:
    rows = []
    target.model.set_attn_implementation("sdpa")  # whole sequences, not the packed rows of the engine's attention
    for number in sorted({number for number, _ in chosen}):
        ids = torch.tensor([texts[number]], device=target.device)
        logits = target.model(input_ids=ids, use_cache=False).logits[0, :, : target.vocab_size].cpu()
        rows += [logits[place].clone() for each, place in chosen if each == number]
    return rows
