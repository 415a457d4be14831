"""Decodes recorded answers on a simulated device."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from research.simulated_device.device import Device
from research.simulated_device.recorded_model import RecordedModel, RecordedPasses, RecordedSampler
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model.passes import Passes
from suffolk.serving.decoding.engine.policy.planner import Planner
from suffolk.serving.decoding.replay.recording import Recording

_NAME = "drafter"


@dataclass(frozen=True, slots=True)
class Load:
    """How requests arrive.

    Attributes:
        slots: requests that are decoded at once, 1..64.
        rate: requests a second; 0: all at once.
        max_nodes: most nodes of a draft tree.
        host_seconds: time of the host in each step, beside pass and drafts.
    """

    slots: int = 1
    rate: float = 0.0
    max_nodes: int = 64
    host_seconds: float = 0.0


@dataclass(slots=True)
class Answered:
    """One request: its arrival, and the new tokens of each step with the times at its end.

    Attributes:
        ends: seconds of the clock.
        works: seconds of undisturbed work.
    """

    recording: Recording
    arrival: float
    ends: list[float] = field(default_factory=list)
    works: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Steps after the first token."""
        return len(self.ends) - 1

    @property
    def decode_seconds(self) -> float:
        """Seconds from the first token to the last."""
        return self.ends[-1] - self.ends[0]

    @property
    def decoded(self) -> int:
        """Tokens after the first step's."""
        return sum(self.tokens[1:])


@dataclass(frozen=True, slots=True)
class Result:
    """What a simulation showed. The rate and M are of decoding alone, after the first token of each request."""

    answers: list[Answered]
    seconds: float
    nodes: int

    @property
    def rate(self) -> float:
        """Tokens a second of one request."""
        return sum(each.decoded for each in self.answers) / sum(each.decode_seconds for each in self.answers)

    @property
    def undisturbed_rate(self) -> float:
        """The rate by the undisturbed time of the same work. It shows the decisions without the noise."""
        return sum(each.decoded for each in self.answers) / sum(each.works[-1] - each.works[0] for each in self.answers)

    @property
    def mean_length(self) -> float:
        """M: tokens of a step."""
        return sum(each.decoded for each in self.answers) / max(1, sum(each.steps for each in self.answers))

    @property
    def nodes_per_step(self) -> float:
        return self.nodes / max(1, sum(each.steps for each in self.answers))

    @property
    def throughput(self) -> float:
        """Tokens a second of the device."""
        return sum(sum(each.tokens) for each in self.answers) / self.seconds

    def full_throughput(self, slots: int) -> float:
        """Tokens a second of the device while ``slots`` requests run: from their first tokens to the last request's first
        token."""
        begin, end = max(each.ends[0] for each in self.answers[:slots]), max(each.ends[0] for each in self.answers)
        steps = ((at, new) for each in self.answers for at, new in zip(each.ends, each.tokens, strict=True))
        return sum(new for at, new in steps if begin < at <= end) / (end - begin)

    def first_token_seconds(self, *quantiles: float) -> list[float]:
        """Seconds from arrival to the first token."""
        return [float(each) for each in np.quantile([a.ends[0] - a.arrival for a in self.answers], quantiles)]

    def token_seconds(self, *quantiles: float) -> list[float]:
        """Seconds between tokens; the tokens of one step come at once."""
        gaps = [
            gap
            for each in self.answers
            for end, before, new in zip(each.ends[1:], each.ends, each.tokens[1:], strict=False)
            for gap in [end - before, *[0.0] * (new - 1)]
        ]
        return [float(each) for each in np.quantile(gaps, quantiles)]

    def of_group(self, group: str) -> Result:
        """The answers of one set of prompts."""
        return replace(self, answers=[each for each in self.answers if each.recording.group == group])


def simulate(
    recordings: Sequence[Recording],
    device: Device,
    drafter: Drafter | None,
    planner: Planner,
    load: Load = Load(),
    seed: int = 0,
) -> Result:
    """Decode the answers in ``recordings`` in order of arrival. ``drafter``: None for plain decoding."""
    vocab = recordings[0].vocab_size
    model, random = RecordedModel(vocab), np.random.default_rng(seed)
    longest = max(len(each.prompt) + len(each.generated) for each in recordings) + load.max_nodes + 1
    arrivals = np.cumsum(random.exponential(1 / load.rate, len(recordings))) if load.rate else np.zeros(len(recordings))
    waiting = deque(Answered(each, float(at)) for each, at in zip(recordings, arrivals, strict=True))
    answers, running = list(waiting), dict[int, Answered]()
    clock = device.clock
    with clock.running():
        target = model.as_target()
        loop = StepLoop(target, None if drafter is None else {_NAME: drafter}, planner, load.slots, longest, "packed")
        loop.passes = cast(Passes, RecordedPasses(device, loop.cache.lengths, load.host_seconds))
        numbers = iter(range(1, len(recordings) + 1))
        while waiting or running:
            if not running and waiting[0].arrival > clock.now:
                clock.now = waiting[0].arrival
            while waiting and loop.free and waiting[0].arrival <= clock.now:
                answered = waiting.popleft()
                request = _request(next(numbers), model, answered.recording, "" if drafter is None else _NAME, load)
                loop.join(request)
                running[request.number] = answered
            for request, step in loop.step():
                if not isinstance(step, Step):
                    raise step
                running[request.number].ends.append(clock.now)
                running[request.number].works.append(clock.work)
                running[request.number].tokens.append(len(step.tokens))
                if step.finish:
                    del running[request.number]
    return Result(answers, clock.now, loop.stats.nodes_verified)


def _request(number: int, model: RecordedModel, recording: Recording, drafter: str, load: Load) -> Request:
    settings = replace(recording.settings, max_new_tokens=len(recording.generated), stop=())
    request = Request(number, model.as_target(), recording.prompt.tolist(), settings, drafter, load.max_nodes)
    request.sampler = RecordedSampler(np.concatenate([recording.prompt, recording.generated])).as_sampler()
    return request
