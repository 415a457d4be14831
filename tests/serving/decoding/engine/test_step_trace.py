"""Tests the traces of steps: what was proposed, verified, accepted and sampled, and that they change nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step import TRACED_CONTEXT, Step
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.worker.call import StepJoiner
from suffolk.serving.worker.wire import pack_options
from tests.support.drafters import MadeUpDrafter, alone, knowing, tree
from tests.support.tiny_models import VOCAB

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
SETTINGS = SamplingSettings(max_new_tokens=40)


class VerifyTwo(VerifyAllPlanner):
    """Verifies the first two nodes of each draft."""

    def size_trees(self, candidates, requests, rows, context) -> None:  # type: ignore[no-untyped-def]
        for each in candidates:
            each.verified = min(2, len(each.scores))


def decode(
    target: Target,
    drafter: Drafter,
    settings: SamplingSettings = SETTINGS,
    trace: bool = True,
    planner: VerifyAllPlanner | None = None,
) -> list[Step]:
    request = Request(1, target, PROMPT, settings, "one", 64, DraftOptions(trace=trace))
    loop = StepLoop(target, {"one": drafter}, planner or VerifyAllPlanner(), 1, 700)
    loop.join(request)
    steps: list[Step] = []
    while loop.running:
        for _, step in loop.step():
            assert isinstance(step, Step)
            steps.append(step)
    return steps


def test_a_trace_tells_which_nodes_became_text(target: Target) -> None:
    output, drafts = alone(target, PROMPT, SETTINGS), []
    drafter = knowing(len(PROMPT), output, 4, np.random.default_rng(5), VOCAB)

    def remember(request: DraftRequest) -> DraftTree:
        drafts.append(drafter.propose([request])[0])
        return drafts[-1]

    text = list(PROMPT)
    steps = decode(target, MadeUpDrafter(remember))
    assert [token for step in steps for token in step.tokens] == output
    for step, drafted in zip(steps, [DraftTree.empty(), *drafts], strict=True):
        [trace] = step.traces
        found = trace.tree
        assert found.tokens.tolist() == drafted.tokens.tolist()[: len(found)]  # the last ones may be too deep
        assert trace.verified == len(found)
        assert trace.context == tuple(text[-TRACED_CONTEXT:])
        accepted = found.tokens[list(trace.accepted)].tolist()
        assert (*accepted, *([] if trace.sampled is None else [trace.sampled])) == step.tokens
        assert list(trace.accepted[:-1]) == found.parents[list(trace.accepted[1:])].tolist()
        assert step.sources[: len(accepted)] == tuple(found.sources[list(trace.accepted)].tolist())
        assert {"forward", "verify", "draft"} <= trace.seconds.keys()
        text += step.tokens
    assert sum(len(step.traces[0].accepted) for step in steps) > 20


def test_nodes_that_the_planner_cuts_are_in_the_trace(target: Target) -> None:
    output = alone(target, PROMPT, SETTINGS)
    drafter = MadeUpDrafter(lambda request: tree(output[len(request.tokens) - len(PROMPT) :][:5], [-1, 0, 1, 2, 3][:5]))
    traces = [
        step.traces[0] for step in decode(target, drafter, SamplingSettings(max_new_tokens=20), planner=VerifyTwo())
    ]
    assert [(len(each.tree), each.verified, each.accepted) for each in traces[1:4]] == [(5, 2, (0, 1))] * 3


def test_a_drafted_token_can_end_the_text(target: Target) -> None:
    output = alone(target, PROMPT, SETTINGS)
    ending = replace(target, eos_ids=frozenset({output[2]}))
    drafter = knowing(len(PROMPT), output, 6, np.random.default_rng(6), VOCAB)
    last = decode(ending, drafter)[-1]
    assert last.finish == "eos"
    assert last.traces[0].sampled is None
    assert len(last.traces[0].accepted) == len(last.tokens)


def test_without_the_option_steps_have_no_trace(target: Target) -> None:
    drafter = knowing(len(PROMPT), alone(target, PROMPT, SETTINGS), 4, np.random.default_rng(5), VOCAB)
    assert all(step.traces == () for step in decode(target, drafter, trace=False))
    with pytest.raises(InvalidArgument, match="trace is 1; it must be true or false"):
        DraftOptions(trace=1)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="trace cannot be sent over gRPC"):
        pack_options(DraftOptions(trace=True))


def test_joined_steps_keep_their_traces(target: Target) -> None:
    drafter = knowing(len(PROMPT), alone(target, PROMPT, SETTINGS), 4, np.random.default_rng(5), VOCAB)
    steps, joiner = decode(target, drafter), StepJoiner(1.0, lambda: 0.0)
    joined = [found for step in steps if (found := joiner.add(step)) is not None]
    assert len(joined) == 2
    assert [trace for step in joined for trace in step.traces] == [trace for step in steps for trace in step.traces]
