"""Decodes made-up answers on simulated devices: the real loop gives their texts, and the policy holds its bars."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from research.simulated_device.bars import GPU, Checked, batches, holding, losing, models, prompts, unsteady
from research.simulated_device.comparison import Case, compare, read_answers
from research.simulated_device.device import Disturbances, DraftTimes
from research.simulated_device.ranges import changed
from research.simulated_device.simulation import Load
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.policy import constants, planner
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.recording import Recording
from tests.support.stores import make_store

VOCAB = 500


def answer(seed: int, tokens: int = 160) -> Recording:
    """Random tokens, with a passage of the prompt in the middle."""
    random = np.random.default_rng(seed)
    prompt, text = random.integers(0, VOCAB, 40), random.integers(0, VOCAB, tokens)
    text[60:90] = prompt[5:35]
    return Recording(
        prompt.astype(np.int32), text.astype(np.int32), SamplingSettings(tokens), VOCAB, group=str(seed % 2)
    )


ANSWERS = [answer(seed) for seed in range(12)]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """A device of 7 ms a token, and a datastore that holds the answers."""
    texts = [np.concatenate([each.prompt, each.generated]).tolist() for each in ANSWERS]
    with make_store(tmp_path_factory.mktemp("known") / "store", [texts], vocab_size=VOCAB) as store:
        yield Case(ANSWERS, GPU, store)


def missed(checked: Iterator[Checked]) -> list[str]:
    return [f"{each.name}: {each.value:.3f}" for each in checked if not each.holds]


def test_plain_decoding_takes_the_time_of_the_table(known: Case) -> None:
    result = known.run(None)
    assert result.rate == pytest.approx(1000 / 7.05 / 1000, rel=1e-6)  # the table is in milliseconds
    assert result.mean_length == 1.0
    assert [sum(each.tokens) for each in result.answers] == [160] * 12


def test_a_simulation_repeats_exactly_by_seed(known: Case) -> None:
    noisy = replace(known, disturbances=Disturbances(0.1, 0.05, 0.3), seed=3)
    first, second = noisy.run("hybrid"), noisy.run("hybrid")
    assert [each.ends for each in first.answers] == [each.ends for each in second.answers]
    assert first.seconds != replace(noisy, seed=4).run("hybrid").seconds


def test_requests_arrive_by_a_rate_and_wait_for_a_slot(known: Case) -> None:
    rare = replace(known, load=Load(slots=1, rate=1e-6)).run(None)
    assert rare.first_token_seconds(0.99)[0] < 10
    at_once = replace(known, load=Load(slots=2)).run(None)
    assert at_once.first_token_seconds(0.99)[0] > 1000
    assert at_once.throughput > rare.throughput


def test_the_policy_is_near_the_best_fixed_size_and_the_ceiling(known: Case) -> None:
    case = replace(known, times={name: DraftTimes() for name in ("prompt-lookup", "datastore")})
    [found] = compare(case, ["datastore"])
    assert found.of_best_fixed > 0.95
    assert 0.3 < found.of_ceiling <= 1.0
    assert found.best_nodes > 0


def test_known_answers_are_used_within_thirty_steps(known: Case) -> None:
    assert missed(holding(replace(known, answers=ANSWERS[:3]))) == []


def test_useless_slow_and_dying_sources_cost_two_percent_at_most(known: Case) -> None:
    longer = replace(known, answers=[answer(seed, 1000) for seed in range(2)])
    assert missed(losing(longer, [3, 55])) == []


def test_a_changing_speed_costs_two_percent_at_most(known: Case) -> None:
    assert missed(unsteady(known, [7, 55])) == []


def test_batches_are_not_slower_than_plain_decoding(known: Case) -> None:
    assert missed(batches(replace(known, answers=ANSWERS * 2), [8])) == []


def test_prompts_are_read_beside_decoding(known: Case) -> None:
    assert missed(prompts(known, [8, 32])) == []


def test_a_hybrid_with_a_draft_model_is_as_fast_as_its_best_part(known: Case) -> None:
    assert missed(models(replace(known, answers=ANSWERS), [7, 55])) == []


def test_a_constant_changes_in_all_modules_that_import_it_and_changes_back() -> None:
    before = constants.HOPE
    with changed("HOPE", 2 * before):
        assert constants.HOPE == planner.HOPE == 2 * before
    assert constants.HOPE == planner.HOPE == before


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_without_answers_is_refused(tmp_path: Path, limit: int) -> None:
    """Regression: the studies ended with a traceback."""
    with pytest.raises(InvalidArgument, match=f"--limit is {limit}; it must be 1 or more"):
        read_answers(tmp_path / "answers.jsonl", limit, 21)
