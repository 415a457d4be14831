"""Tests levels that draft for each other: their passes, the requests that they refuse, and their counters."""

from __future__ import annotations

import numpy as np
import pytest

from suffolk.benchmarks.hierarchy.agreement import (
    ModelVariant,
    TargetAnswer,
    fit_run_distribution,
    measure_agreement,
    model_starts,
)
from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.hierarchy.draft_segment import DraftSegment
from suffolk.serving.decoding.drafters.hierarchy.drafter import HierarchyDrafter, LevelBatcher
from suffolk.serving.decoding.drafters.hierarchy.load import StackLoader
from suffolk.serving.decoding.drafters.hierarchy.model_level import ModelLevel
from suffolk.serving.decoding.drafters.hierarchy.recursion import Recursion, RoundPolicy, SegmentCalibrator, StackState
from suffolk.serving.decoding.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.decoding.drafters.hierarchy.stack_spec import StackLevel
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, SampledChain, tree_of
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import MIN_TEMPERATURE, SamplingSettings
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import alone, eager_decoder, eager_loop
from tests.support.hierarchies import DEPTHS, PROMPT, hierarchy, level, lookup, noisy, request
from tests.support.tiny_models import VOCAB, tiny_model


class Priced(CostModel):
    """Every pass takes one second of simulated time."""

    def __init__(self) -> None:
        super().__init__([1], [1.0])

    def update(self, rows: int, requests: int, context: float, seconds: float) -> None:
        pass


class Watched(Priced):
    """Records the predicted and the observed passes, each as (rows, requests, context)."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int, float]] = []
        self.told: list[tuple[int, int, float]] = []

    def time(self, rows: int, requests: int, context: float) -> float:
        self.asked.append((rows, requests, context))
        return super().time(rows, requests, context)

    def update(self, rows: int, requests: int, context: float, seconds: float) -> None:
        self.told.append((rows, requests, context))


def test_words_that_a_level_lacks_do_not_stop_it() -> None:
    """Regression: all drafts used to fail if a banned word of the target has ids that a level lacks."""
    drafter = hierarchy(4, Target.wrap(tiny_model()), noisy(0.02, vocab_size=80))
    settings = SamplingSettings(45, bad_words=((VOCAB - 1,), (3, VOCAB - 1)))
    [found] = drafter.propose([DraftRequest(1, np.arange(30, dtype=np.int32), 8, 30, settings)])
    assert len(tree_of(found))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_target_s_own_weights_on_top_are_always_right(depth: int, temperature: float) -> None:
    """Whatever the levels below, the top level hands up its own tokens, four or more."""
    target, settings = Target.wrap(tiny_model()), SamplingSettings(41, temperature, top_k=20, seed=3)
    run = eager_decoder(target, hierarchy(depth, target, Target.wrap(tiny_model()))).generate(PROMPT, settings)
    list(run)
    assert run.tokens == alone(target, PROMPT, settings)
    assert run.stats.accepted == 40 - run.stats.steps
    assert run.stats.steps <= 10


def test_what_was_read_is_not_read_again() -> None:
    """Each token of the text is read once, because accepted tokens stay in the cache."""
    target = Target.wrap(tiny_model())
    top = level(Target.wrap(tiny_model()), 4)
    run = eager_decoder(target, HierarchyDrafter([top], VOCAB, thrifty=False)).generate(PROMPT, SamplingSettings(41))
    list(run)
    assert run.stats.steps == 8
    assert top.rows == len(PROMPT) + 40 - 1  # all but the last token, which nothing follows


def test_requests_beyond_its_slots_or_its_capacity_go_without_drafts() -> None:
    target, settings = Target.wrap(tiny_model()), SamplingSettings(20)
    drafter = HierarchyDrafter([lookup(VOCAB), level(noisy(0.01), 4, slots=1, capacity=70)], VOCAB, slots=1)
    loop = eager_loop(target, {"hierarchy": drafter}, slots=3)
    prompts = {1: PROMPT, 2: PROMPT[5:], 3: PROMPT * 3}
    requests = [Request(number, target, prompt, settings, "hierarchy", 8) for number, prompt in prompts.items()]
    for each in requests:
        loop.join(each)
    while loop.running:
        loop.step()
    for each in requests:
        assert each.generated == alone(target, prompts[each.number], settings)
    assert requests[1].stats.draft_failures["ResourceExhausted"] > 0
    assert drafter.stats()["failed ResourceExhausted"] > 0
    long = DraftRequest(9, np.asarray(PROMPT * 3, np.int32), 8)
    assert len(tree_of(drafter.propose([long])[0])) == 0  # a slot is free again, but it is too small


def test_a_source_that_is_gone_costs_its_drafts_alone() -> None:
    class Gone(BruteForceRetriever):
        def find_drafts(self, query: ContextQuery) -> list[DraftTree]:
            raise InvalidArgument("gone")

    source = DatastoreDrafter(Gone([PROMPT], VOCAB), VOCAB)
    target, settings = Target.wrap(tiny_model()), SamplingSettings(20)
    drafter = HierarchyDrafter([RetrievalLevel("datastore", [source], 3), level(noisy(0.01), 4)], VOCAB)
    run = eager_decoder(target, drafter).generate(PROMPT, settings)
    list(run)
    assert run.tokens == alone(target, PROMPT, settings)
    assert run.stats.accepted > 0
    assert drafter.stats()["failed InvalidArgument"] > 0


def test_what_it_cannot_draft_for_is_counted_and_what_nobody_asked_for_is_not() -> None:
    """Regression: a text with a token that a level lacks used to get no drafts silently.

    A request for no nodes counted as a failure.
    """
    lacking = HierarchyDrafter([level(noisy(0.02, vocab_size=80), 4)], VOCAB)
    assert len(tree_of(lacking.propose([DraftRequest(1, np.asarray([1, 2, 85], np.int32), 8, 3)])[0])) == 0
    assert lacking.stats()["failed Unsupported"] == 1
    searched = HierarchyDrafter([lookup(VOCAB)], VOCAB)
    assert len(tree_of(searched.propose([DraftRequest(1, np.asarray(PROMPT, np.int32), 0)])[0])) == 0
    assert not [name for name, count in searched.stats().items() if name.startswith("failed") and count]


def test_tokens_behind_the_end_of_a_text_are_not_refused_ones() -> None:
    drafter = HierarchyDrafter([level(Target.wrap(tiny_model()), 4)], VOCAB, thrifty=False)
    [found] = drafter.propose([DraftRequest(1, np.asarray(PROMPT, np.int32), 8)])
    drafter.observe({1: tree_of(found).tokens[:1]})
    assert len(tree_of(found)) > 1
    assert drafter._rounds._acceptance.value > 0.6


def test_a_draft_without_a_pass_is_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a draft without a pass used to count as a round of zero time, which lowered the estimated cost of rounds."""
    drafter = HierarchyDrafter([level(Target.wrap(tiny_model()), 4)], VOCAB, thrifty=False)
    monkeypatch.setattr(LevelBatcher, "draft", lambda *_: None)
    drafter.propose([DraftRequest(1, np.asarray(PROMPT, np.int32), 8)])
    assert drafter._rounds.pays(0.0, 1e-9), "nothing is known of rounds yet"


def test_levels_that_retrieve_learn_what_is_kept() -> None:
    """Regression: the calibration of retrieval levels used to be lost with the hierarchy.

    Later it was shared with the sources of ``hybrid``, which learned each text twice.
    """
    known = Calibration()
    [source] = StackLoader(Target.wrap(tiny_model()), calibration=known).sources("prompt-lookup")
    source.draft([DraftRequest(1, np.asarray(PROMPT + PROMPT[:5], np.int32), 8)])
    source.observe({1: np.asarray(PROMPT[5:8], np.int32)})
    assert {each.source for each in known.learned() if each.reliability.any()} == {"prompt-lookup in hierarchy"}


def test_a_long_prompt_is_read_in_parts() -> None:
    model = tiny_model(max_position_embeddings=2048)
    drafter = HierarchyDrafter([level(Target.wrap(model), 4, slots=1, capacity=2000)], VOCAB, slots=1, thrifty=False)
    asked = DraftRequest(1, np.resize(np.asarray(PROMPT, np.int32), 1200), 8, 1200)
    assert [len(tree_of(drafter.propose([asked])[0])) for _ in range(4)] == [0, 0, 4, 4]
    assert drafter.stats()["prefill_seconds"] > 0


def test_a_step_reads_as_much_of_many_long_prompts_as_of_one() -> None:
    """Regression: one step used to read a full part of every prompt, and all other requests waited for it."""
    models = [level(Target.wrap(tiny_model(max_position_embeddings=2048)), 4, capacity=900) for _ in range(2)]
    drafter = HierarchyDrafter(models, VOCAB, thrifty=False)
    prompt = np.resize(np.asarray(PROMPT, np.int32), 800)
    asked, rows, drafted = [DraftRequest(number, prompt, 8, 800) for number in range(4)], [0], []
    for _ in range(8):
        drafted.append(sum(len(tree_of(each)) > 0 for each in drafter.propose(asked)))
        rows.append(models[0].rows)
    assert drafted == [0, 1, 1, 2, 3, 3, 4, 4], "those that came first are read first"
    assert np.diff(rows).max() <= 512 + 4 * 8


def test_what_a_pass_took_is_learned_for_what_it_was_estimated_for() -> None:
    """The pass has texts of several lengths. The cache also has a text that is not in the pass."""
    costs = Watched()
    top = ModelLevel("top", 3, Target.wrap(tiny_model()), costs, 3, 160)
    drafter = HierarchyDrafter([top], VOCAB, slots=3, thrifty=False)
    long = DraftRequest(3, np.asarray(PROMPT * 3, np.int32), 8, len(PROMPT))
    drafter.propose([long])
    costs.asked.clear()
    costs.told.clear()
    drafter.propose([request(), DraftRequest(2, np.asarray(PROMPT[:9], np.int32), 8, 9)])
    assert len(costs.told) >= 3
    assert costs.told == costs.asked


class SecondsEach:
    """Make passes take a fixed time, except those that read prompts."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def time(self, rows: float, requests: float, context: float) -> float:
        return self.seconds if rows < 20 else 0.0

    def update(self, *told: object) -> None:
        pass


def test_passes_of_lower_levels_count_where_the_top_one_may_make_none() -> None:
    """The time of passes of lower levels is charged to the speculation budget, even if the top level makes no pass."""
    lower = ModelLevel("lower", 3, noisy(0.01), SecondsEach(0.001), 8, 160)
    top = ModelLevel("top", 4, Target.wrap(tiny_model()), SecondsEach(0.01), 8, 160)
    drafter = HierarchyDrafter([lower, top], VOCAB)
    for _ in range(100):
        [draft] = drafter.propose([request(budget=DraftBudget(token_seconds=1e-5, model_seconds=0.005))])
        assert not len(tree_of(draft))
    assert lower.passes > 0
    assert drafter.stats()["lower: passes"] == lower.passes


@pytest.mark.parametrize(("most", "tokens"), [(0.5, 0), (1.5, 1), (3.5, 3), (100.0, 6)])
def test_a_draft_takes_no_more_than_it_may(most: float, tokens: int) -> None:
    """Each pass takes a second. By the cost of a token alone, all passes would be worthwhile."""
    own = ModelLevel("draft", 6, Target.wrap(tiny_model()), Priced(), 8, 160)
    [draft] = HierarchyDrafter([own], VOCAB).propose(
        [request(budget=DraftBudget(token_seconds=1e9, model_seconds=most))]
    )
    assert len(tree_of(draft)) == tokens
    own = ModelLevel("draft", 6, Target.wrap(tiny_model()), Priced(), 8, 160)
    [draft] = HierarchyDrafter([own], VOCAB, thrifty=False).propose(
        [request(budget=DraftBudget(token_seconds=1e9, model_seconds=most))]
    )
    assert len(tree_of(draft)) == 6


def test_a_further_round_must_promise_more_where_tokens_come_fast() -> None:
    """A round takes a second and gives one token. The faster tokens come, the less time a token saves."""
    policy, text = RoundPolicy([]), StackState(0, 1)
    recursion = Recursion([], VOCAB, frozenset(), SegmentCalibrator(retrieval=True), policy)
    policy.learn_rounds(10, 10, 10.0)
    got = DraftSegment((1,), np.ones(1))

    def goes_on(rate: float) -> bool:
        budget = DraftBudget(token_seconds=4.0, speedup=rate)
        text.begin(request(budget=budget))
        return recursion._goes_on(text, got)

    assert [goes_on(rate) for rate in (1.0, 2.0, 3.0)] == [True, True, False]


@pytest.mark.parametrize("depth", DEPTHS)
def test_drawn_chains_tell_their_laws(depth: int) -> None:
    target = Target.wrap(tiny_model())
    settings = SamplingSettings(40, 0.8, top_k=10, seed=2, verification="rejection")
    asked = DraftRequest(1, np.asarray(PROMPT, np.int32), 5, len(PROMPT), settings)
    [chain] = hierarchy(depth, target, noisy(0.02)).propose([asked])
    assert isinstance(chain, SampledChain)
    assert 1 <= len(chain.tree) <= 5  # cut to the requested length
    assert np.allclose(chain.distributions.sum(-1).numpy(), 1)
    assert (chain.distributions > 0).sum(-1).max() <= 10
    assert (chain.distributions.numpy()[np.arange(len(chain.tree)), chain.tree.tokens] > 0).all()


def test_a_level_is_asked_for_what_it_is() -> None:
    """A retrieval level has no model, and an exit has no source.

    Without this check, another level's model or datastore would be used.
    """
    stacks = StackLoader(
        Target.wrap(tiny_model()), draft_model="/nowhere", retrievers=[BruteForceRetriever([PROMPT], VOCAB)]
    )
    for name in ("prompt-lookup", "datastore"):
        with pytest.raises(InvalidArgument, match=f"level {name} is searched and has no model"):
            stacks.model(name)
    for name in ("exit-1", "draft-model"):
        with pytest.raises(InvalidArgument, match=f"level is '{name}'.*; it must be one of prompt-lookup, "):
            stacks.sources(name)


def test_the_least_temperature_of_a_level_drafts() -> None:
    """A stack accepts the temperatures at which its levels can sample, and rejects others, as the target's settings do."""
    warmth = StackLevel("draft-model", 4, MIN_TEMPERATURE).temperature
    drafter = HierarchyDrafter([level(noisy(0.02), 4, temperature=warmth)], VOCAB)
    [draft] = drafter.propose([request(settings=SamplingSettings(20, 1.0))])
    assert len(tree_of(draft)) > 0


def test_runs_are_told_from_places_that_agree() -> None:
    """The answers have long bursts of acceptance or rejection. The end of a text does not end a run."""
    agreeing = np.repeat([1.0, 0.0], [30, 10])
    law = fit_run_distribution("a", "b", [model_starts(agreeing, 6)], 6)
    starts = [0, 7, 14, 21, 28, *range(31, 40)]  # the result for rounds of six tokens
    runs = [min(6, max(0, 30 - start)) for start in starts]
    assert law.probabilities == pytest.approx([np.mean([run == count for run in runs]) for count in range(7)])
    fair = fit_run_distribution("a", "b", [model_starts(np.full(50, 0.5), 4)], 4)
    assert fair.probabilities == pytest.approx([0.5, 0.25, 0.125, 0.0625, 0.0625])


@pytest.mark.parametrize("verification", ["match", "rejection"])
def test_levels_agree_as_they_accept(verification: str) -> None:
    """A model agrees with itself everywhere. For another model, the measured rate equals the rate in decoding."""
    target, other = Target.wrap(tiny_model()), noisy(0.02)
    settings = SamplingSettings(60, 1.0, seed=4, verification=verification)
    written = TargetAnswer(
        np.asarray(PROMPT, np.int32),
        np.asarray(alone(target, PROMPT, SamplingSettings(60, 1.0, seed=4)), np.int32),
        settings,
    )
    voices = [
        ModelVariant("other", other),
        ModelVariant("same", Target.wrap(tiny_model())),
        ModelVariant("target", target),
    ]
    found = measure_agreement(written, voices, [lookup(VOCAB, 4)], 4)
    assert found.between[1, 2] == pytest.approx(1.0)
    assert 0 < found.between[0, 2].mean() < 1
    run = eager_decoder(target, HierarchyDrafter([level(other, 1)], VOCAB)).generate(PROMPT, settings)
    list(run)
    assert run.stats.accepted / run.stats.steps == pytest.approx(found.between[0, 2].mean(), abs=0.25)
    assert found.retrieved[0].shape == (3, 60, 4)
    assert np.nanmax(found.retrieved[0]) <= 1 + 1e-9
