"""Measures the inputs of a plan: costs of passes, and how often levels accept each other's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suffolk.benchmarks.hierarchy.agreement import (
    Agreement,
    Ids,
    ModelVariant,
    TargetAnswer,
    fit_run_distribution,
    mean_acceptance,
    measure_agreement,
    model_starts,
    round_weights,
)
from suffolk.benchmarks.hierarchy.along_answer import bottom_calls, repeat, verify, walk
from suffolk.benchmarks.hierarchy.trial import PLAIN, SIZES, Trial, time_lookups, time_passes
from suffolk.build_index.progress import tracked
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.hierarchy.draft_segment import Floats
from suffolk.serving.decoding.drafters.hierarchy.level import Level, RunDistribution
from suffolk.serving.decoding.drafters.hierarchy.levels import Levels
from suffolk.serving.decoding.drafters.hierarchy.load import StackLoader
from suffolk.serving.decoding.drafters.hierarchy.plan import Prediction
from suffolk.serving.decoding.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.decoding.drafters.hierarchy.stack_spec import (
    RETRIEVAL,
    TARGET,
    StackLevel,
    level_name,
    require_stack,
)
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

_LONGEST = 3
"""Accepted runs are measured up to 3 times the plans' depth, because a draft may exceed the requested length."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """Costs and agreement of a target and its levels, on the target's own answers.

    Attributes:
        variants: the models, each at one temperature. The target is the last.
        sources: names of retrieval levels.
        costs: one array for each variant; entry d is the seconds of a pass that verifies d tokens. The target's costs
            include the rest of a decoding step.
        lookups: for each source, the seconds of one call.
        agreements: one ``Agreement`` for each answer of the target.
        depth: the largest draft length of the plans.
    """

    variants: tuple[ModelVariant, ...]
    sources: tuple[str, ...]
    costs: tuple[Floats, ...]
    lookups: tuple[float, ...]
    agreements: tuple[Agreement, ...]
    depth: int

    def levels(self) -> Levels:
        """All levels in an order that makes any plan a valid stack (``require_stack``).

        Models are ordered by cost, exits by their number of layers. The variants of one model are adjacent in this order, but
        never in a plan.
        """
        order, retrieved = [*self._by_cost(), len(self.variants) - 1], len(self.sources)
        levels = [
            Level(name, seconds, retrieval=True, found=self._found_distribution(source))
            for source, (name, seconds) in enumerate(zip(self.sources, self.lookups, strict=True))
        ]
        levels += [Level(self.variants[each].name, tuple(self.costs[each].tolist())) for each in order]
        acceptance: list[list[float | None]] = [[None] * len(levels) for _ in levels]
        runs: list[RunDistribution] = []
        for column, verifier in enumerate(order, retrieved):
            known = {row: [each.retrieved[row][verifier] for each in self.agreements] for row in range(retrieved)}
            for row, drafter in enumerate(order[: column - retrieved], retrieved):
                if self.variants[drafter].model is not self.variants[verifier].model:
                    longest = _LONGEST * self.depth
                    known[row] = [model_starts(each.between[drafter, verifier], longest) for each in self.agreements]
            for row, starts in known.items():
                runs.append(fit_run_distribution(levels[row].name, levels[column].name, starts, self.depth))
                if row < retrieved:  # the mean covers only places where a token was found
                    there = [each.found[row] > 0 for each in self.agreements]
                    starts = [each[places] for each, places in zip(starts, there, strict=True)]
                acceptance[row][column] = mean_acceptance(starts)
        return Levels(tuple(levels), tuple(map(tuple, acceptance)), tuple(runs))

    def predict(self, stack: Sequence[StackLevel]) -> Prediction:
        """Predict the cost of decoding the measured answers with ``stack``.

        Raises InvalidArgument if ``stack`` is not valid, or a level was not measured.
        """
        require_stack(stack)
        names = [level_name(level.name, level.temperature) for level in stack]
        known = [*self.sources, *(variant.name for variant in self.variants)]
        if missing := [name for name in names if name not in known]:
            raise InvalidArgument(f"level {missing[0]} was not measured; measured are {', '.join(known)}")
        walks = [self.walk(each, names, [level.tokens for level in stack]) for each in self.agreements]
        passes, seconds = np.sum(walks, axis=0)
        tokens = sum(each.between.shape[2] - 1 for each in self.agreements)
        return Prediction(float(seconds / tokens), float(tokens / passes))

    def walk(self, answer: Agreement, names: Sequence[str], lengths: Sequence[int]) -> tuple[float, float]:
        """Return the target's passes and seconds for ``answer`` if the levels ``names`` draft ``lengths`` tokens."""
        numbers = {variant.name: place for place, variant in enumerate(self.variants)}
        size, source = answer.between.shape[2], None
        if names[0] in self.sources:
            source = self.sources.index(names[0])
            calls = bottom_calls(np.minimum(answer.found[source], lengths[0]), self.lookups[source])
        else:
            one = float(self._pass_seconds(numbers[names[0]], 0)[0])
            calls = bottom_calls(np.full(size, lengths[0], np.int64), lengths[0] * one)
        above = [*(numbers[name] for name in names[1:]), len(self.variants) - 1]
        for place, verifier in enumerate(above):
            most = calls.lengths.shape[1] - 1
            if place == 0 and source is not None:
                starts = answer.retrieved[source][verifier]
            else:
                starts = model_starts(answer.between[numbers[names[place]], verifier], max(most, 1))
            rounds = verify(calls, starts, self._pass_seconds(verifier, most))
            if place < len(above) - 1:
                calls = repeat(rounds, lengths[place + 1])
        return walk(rounds)

    def _pass_seconds(self, variant: int, most: int) -> Floats:
        """Return float64[most + 1]: the seconds of a pass that verifies 0 to ``most`` tokens."""
        return Level(self.variants[variant].name, tuple(self.costs[variant].tolist())).pass_seconds(np.arange(most + 1))

    def _by_cost(self) -> list[int]:
        """Return the indices of the variants except the target, by rising cost."""
        models = [variant.name.partition("@")[0] for variant in self.variants[:-1]]
        seconds: dict[str, float] = {}
        for model, cost in zip(models, self.costs, strict=False):
            seconds[model] = min(float(cost[0]), seconds.get(model, np.inf))
        layers = {model: StackLevel(model, 1).exit_layers or 0 for model in seconds}
        slowest = 0.0
        for model in sorted(filter(layers.get, layers), key=layers.__getitem__):
            slowest = seconds[model] = max(slowest, seconds[model])
        return sorted(range(len(models)), key=lambda each: (seconds[models[each]], layers[models[each]], models[each]))

    def _found_distribution(self, source: int) -> tuple[float, ...]:
        """Return the distribution of the number of tokens that ``source`` finds at the start of the target's rounds."""
        counts = np.zeros(self.depth + 1)
        for each in self.agreements:
            weights = round_weights(each.retrieved[source][-1], self.depth)
            np.add.at(counts, each.found[source], weights)
        return tuple((counts / counts.sum()).tolist())


def measure_levels(
    target: Target,
    stacks: StackLoader,
    wanted: Sequence[tuple[str, float | None]],
    prompts: Sequence[Ids],
    settings: SamplingSettings,
    depth: int,
) -> Measurements:
    """Measure the ``wanted`` levels (name and temperature, as in ``StackLevel``) of ``target``, on its own answers.

    Args:
        prompts: token ids of one prompt or more.
        settings: how the target samples its answers.
        depth: largest draft length of the plans that use the result.

    Raises:
        As ``StackLoader.drafter`` and ``Request``; InvalidArgument if no answer has two tokens, or a level cannot read a prompt
        with its answer.
    """
    sources = [RetrievalLevel(name, stacks.sources(name), depth) for name, _ in wanted if name in RETRIEVAL]
    variants = [
        ModelVariant(level_name(name, temperature), stacks.model(name), temperature)
        for name, temperature in wanted
        if name not in RETRIEVAL
    ]
    variants.append(ModelVariant(TARGET, target))
    _require_room(variants, max(map(len, prompts)) + settings.max_new_tokens + SIZES[-1] + 1)
    texts, besides = write(target, prompts, settings)
    costs = time_passes(variants, texts)
    costs[-1] = costs[-1] + besides
    lookups = [time_lookups(source, texts[:2], depth) for source in sources]
    read = (measure_agreement(text, variants, sources, depth) for text in texts)
    agreements = tuple(tracked(read, len(texts), "answers read by each model"))
    names = tuple(source.name for source in sources)
    return Measurements(tuple(variants), names, tuple(costs), tuple(lookups), agreements, depth)


def _require_room(variants: Sequence[ModelVariant], tokens: int) -> None:
    """Raise InvalidArgument if a model cannot read ``tokens`` tokens."""
    for variant in variants:
        room = variant.model.context_length
        if room is not None and tokens > room:
            raise InvalidArgument(
                f"level {variant.name} reads at most {room} tokens, and the longest prompt with its answer and a "
                f"draft has {tokens}; give shorter prompts, or lower --max-new-tokens"
            )


def write(target: Target, prompts: Sequence[Ids], settings: SamplingSettings) -> tuple[list[TargetAnswer], float]:
    """Generate the target's answers. Return those of two tokens or more, and the median seconds of a step outside its pass."""
    trial = Trial(target, {}, max(map(len, prompts)) + settings.max_new_tokens)
    answers = (trial.run(PLAIN, prompt, settings) for prompt in prompts)
    runs = list(tracked(answers, len(prompts), "prompts, plain decoding"))
    texts = [
        TargetAnswer(prompt, run.tokens, settings)
        for prompt, run in zip(prompts, runs, strict=True)
        if len(run.tokens) > 1
    ]
    if not texts:
        raise InvalidArgument("every answer has fewer than two tokens; give other prompts")
    return texts, float(np.median([run.besides / run.steps for run in runs if run.steps]))
