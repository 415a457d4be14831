"""Output under a grammar is in the grammar's language, and is equal with any drafter.

Sampled chains keep the distribution of the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.neural.early_exit.drafter import EarlyExitDrafter
from suffolk.serving.decoding.drafters.neural.early_exit.model import shallow
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest, SampledChain
from suffolk.serving.decoding.engine.loop.drafter_pool import permitted_draft
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.verify_step import Outcome, verify
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.decoding.engine.sampling.near_tie import first_difference
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import Free, MadeUpDrafter, SingleRun, eager_decoder, knowing, lying, random_tree, tree
from tests.support.grammars import END, GRAMMARS, Oracle, check_text, ending_target, tokens_of

VOCAB = 257
PROMPT = tokens_of('{"colour":"red","count":12,"flags":[true,false]} abab <t>true</t> {"')
GREEDY = SamplingSettings(max_new_tokens=60)
SAMPLINGS = [
    GREEDY,
    replace(GREEDY, temperature=1.0, seed=3),
    replace(GREEDY, temperature=1.3, seed=4, top_p=0.9, logprobs=2),
    replace(GREEDY, temperature=0.8, seed=5, top_k=4, repetition_penalty=1.2, stop=('"c',)),
    replace(GREEDY, temperature=1.0, seed=6, ignore_eos=True, bad_words=((tokens_of("}")[0], END),)),
]
DRAFTERS = ("knowing", "random", "lying", "prompt-lookup", "hybrid", "early exit")


@cache
def target() -> Target:
    return ending_target()


def make(name: str, output: list[int]) -> Drafter:
    rng = np.random.default_rng(7)
    store = DatastoreDrafter(BruteForceRetriever([[*PROMPT, *output]], VOCAB), VOCAB)
    makers: dict[str, Callable[[], Drafter]] = {
        "knowing": lambda: knowing(len(PROMPT), output, 6, rng, VOCAB),
        "random": lambda: MadeUpDrafter(lambda request: random_tree(rng, int(rng.integers(0, 20)), VOCAB)),
        "lying": lambda: lying(rng, VOCAB),
        "prompt-lookup": lambda: PromptLookupDrafter(VOCAB),
        "hybrid": lambda: HybridDrafter([PromptLookupDrafter(VOCAB), store]),
        "early exit": lambda: EarlyExitDrafter(shallow(target(), 1), costs=Free()),
    }
    return makers[name]()


def run(drafter: Drafter | None, settings: SamplingSettings) -> SingleRun:
    found = eager_decoder(target(), drafter).generate(PROMPT, settings)
    list(found)
    return found


def check(settings: SamplingSettings, found: SingleRun) -> None:
    """Assert that a text is in the language of its grammar, or is a prefix of a text in it."""
    assert settings.grammar is not None
    oracle, text = Oracle(target(), settings.grammar), found.tokens
    if found.stats.finish in ("length", "stop") and not oracle.is_whole(text):
        assert oracle.accepts(text)
        assert found.stats.finish == "length" or settings.stop
        return
    assert oracle.is_whole(text)
    whole = target().tokenizer.decode([token for token in text if token != END])
    if found.stats.finish == "stop":
        assert not oracle.following(text).any()  # and it ended at a complete text
    check_text(settings.grammar, whole)


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=[f"sampling{number}" for number in range(len(SAMPLINGS))])
def test_the_text_is_in_the_language_and_does_not_depend_on_the_drafter(
    grammar: str, sampling: SamplingSettings
) -> None:
    settings = replace(sampling, grammar=GRAMMARS[grammar])
    plain = run(None, settings)
    check(settings, plain)
    for name in DRAFTERS if sampling in SAMPLINGS[:2] else DRAFTERS[:3]:
        drafted = run(make(name, plain.tokens), settings)
        assert drafted.tokens == plain.tokens, name
        assert drafted.stats.finish == plain.stats.finish, name
        if sampling.logprobs is not None:
            assert [each.token for each in drafted.log_probabilities] == plain.tokens
        if name == "knowing" and plain.stats.steps > 4:
            assert drafted.stats.steps < plain.stats.steps  # allowed drafts are verified


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("verification", ["rejection", "typical"])
def test_other_verifications_stay_in_the_language(grammar: str, verification: str) -> None:
    rng = np.random.default_rng(2)

    def sample(request: DraftRequest) -> SampledChain:
        """Drafts a chain that often leaves the language."""
        distributions = torch.from_numpy(rng.dirichlet(np.full(VOCAB, 0.05), 4))
        tokens = [int(rng.choice(VOCAB, p=row.numpy())) for row in distributions]
        return SampledChain(tree(tokens, [-1, 0, 1, 2]), distributions)

    for seed in range(4):
        settings = SamplingSettings(
            60, 1.0, seed=seed, grammar=GRAMMARS[grammar], verification=verification, epsilon=0.01, delta=0.01
        )
        plain = run(None, settings)
        for drafter in (MadeUpDrafter(sample), knowing(len(PROMPT), plain.tokens, 6, rng, VOCAB)):
            check(settings, run(drafter, settings))


def test_only_allowed_nodes_are_verified() -> None:
    """Half of the drafted nodes leave the language. No pass may read them."""
    drafted = run(
        MadeUpDrafter(lambda request: tree([*tokens_of("a#b#"), 200], [-1, -1, 0, 0, 3])),
        replace(GREEDY, grammar=Grammar("regex", "(ab){4,20}")),
    )
    counts = drafted.stats.drafted
    assert counts.proposed.total() == 5 * drafted.stats.draft_calls
    assert 0 < counts.verified.total() <= 2 * drafted.stats.draft_calls


def test_a_sampled_chain_keeps_the_distribution() -> None:
    """Compare the first token after a chain with one third forbidden tokens to the target's distribution."""
    a, b, other = tokens_of("ab#")
    logits = torch.full((3, VOCAB), -5.0, dtype=torch.float64)
    logits[:, a], logits[:, b], logits[:, other] = 1.0, 0.0, 3.0
    expected = torch.tensor([1.0, 0.0]).softmax(-1)[0].item()
    rng = np.random.default_rng(0)
    distributions = torch.zeros(2, VOCAB, dtype=torch.float64)
    distributions[:, [a, b, other]] = 1 / 3
    found: Counter[int] = Counter()
    lengths: Counter[int] = Counter()
    for seed in range(800):
        settings = SamplingSettings(3, 1.0, seed=seed, verification="rejection", grammar=Grammar("regex", "[ab]{4}"))
        request = Request(seed, target(), PROMPT, settings, "one")
        tokens = rng.choice([a, b, other], 2).tolist()
        chain = permitted_draft(request, SampledChain(tree(tokens, [-1, 0]), distributions))
        assert isinstance(chain, SampledChain)
        [outcome] = verify([request], [chain], [logits[: len(chain.tree) + 1]])
        assert isinstance(outcome, Outcome)
        found[[*chain.tree.tokens[outcome.path].tolist(), outcome.token][0]] += 1
        lengths[len(chain.tree)] += 1
    assert set(found) == {a, b}
    assert abs(found[a] / 800 - expected) < 4 * (expected * (1 - expected) / 800) ** 0.5
    assert lengths[1] > 150  # cut at the first forbidden token


def test_a_text_ends_where_its_grammar_is_complete() -> None:
    assert run(None, replace(GREEDY, grammar=Grammar("regex", "ab"))).stats.finish == "stop"
    open_end = run(None, replace(GREEDY, grammar=Grammar("regex", "(ab)?")))
    assert open_end.stats.finish in ("eos", "stop")


def test_a_grammar_that_other_settings_contradict_is_an_error() -> None:
    settings = replace(GREEDY, grammar=Grammar("regex", "a"), bad_words=((tokens_of("a")[0],),))
    with pytest.raises(
        InvalidArgument, match="bad_words, min_tokens, processors, token_mask and grammar together forbid all"
    ):
        run(None, settings)


def test_differences_of_constrained_texts_are_found() -> None:
    settings = replace(GREEDY, grammar=Grammar("regex", "[ab]{8}"))
    text = run(None, settings).tokens
    other = [*text[:5], sum(tokens_of("ab")) - text[5]]
    difference = first_difference(target(), PROMPT, text, other, settings)
    assert difference is not None
    assert (difference.position, difference.first, difference.second) == (5, text[5], other[5])
    assert 0 < difference.gap < np.inf


def test_a_request_without_a_grammar_has_no_matcher() -> None:
    request = Request(1, target(), PROMPT, GREEDY)
    assert request.matcher is None
    assert request.sampler.is_plain_greedy
