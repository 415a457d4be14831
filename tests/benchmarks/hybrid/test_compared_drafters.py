"""The parts of the comparison of one tree with rivals: their rules, names, options, the log, and the summary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.benchmarks.decode.useless_drafter import SOURCE as USELESS
from suffolk.benchmarks.hybrid.compared_drafters import (
    HYBRID,
    Sources,
    compared_names,
    make_compared,
    singles,
    useless_names,
)
from suffolk.benchmarks.hybrid.hindsight_drafter import HindsightDrafter, right
from suffolk.benchmarks.hybrid.options import HybridOptions
from suffolk.benchmarks.hybrid.run import in_turn
from suffolk.benchmarks.hybrid.run_log import RunLog
from suffolk.benchmarks.hybrid.summary import MEAN, ratios, summarize
from suffolk.benchmarks.hybrid.switching_drafter import SwitchingDrafter
from suffolk.benchmarks.hybrid.switching_rules import arctic_inference, frequency_score, sam_decoding
from suffolk.benchmarks.hybrid.time_left import TimeLeft
from suffolk.benchmarks.prompts import Prompt
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.serving.drafters.registry import source_bits
from suffolk.serving.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.engine.loop.drafter import DraftRequest
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import MadeUpDrafter, tree

VOCAB = 50


def found_tree(match: int, counts: Sequence[int], match_count: int, parents: Sequence[int]) -> DraftTree:
    made = tree(list(range(len(counts))), parents)
    return DraftTree(
        made.tokens, made.parents, made.scores, made.sources, np.array(counts, np.uint64), match, match_count
    )


def matching(length: int) -> DraftTree:
    return found_tree(length, [1], 1, [-1])


def never() -> DraftTree:
    raise AssertionError("the network costs time")


@pytest.mark.parametrize(
    ("own", "corpus", "chosen"),
    [(4, 9, None), (5, 9, "prompt-lookup"), (4, 10, "datastore"), (5, 10, "prompt-lookup"), (6, 12, "datastore")],
)
def test_sam_decoding_takes_text_that_matches_five_tokens_and_counts_a_corpus_five_less(
    own: int, corpus: int, chosen: str | None
) -> None:
    found = {"prompt-lookup": [matching(own)], "datastore": [matching(2), matching(corpus)]}
    assert sam_decoding(found, never) == chosen


def test_sam_decoding_without_any_find_takes_the_network() -> None:
    assert sam_decoding({"prompt-lookup": [DraftTree.empty()]}, never) is None


def test_frequency_scores_are_shares_of_short_and_likely_paths() -> None:
    # 10 occurrences: 6 go on with a, 5 of them with b; 4 with c; one with what is too rare
    assert frequency_score(found_tree(2, [6, 5, 4], 10, [-1, 0, -1])) == pytest.approx(1.5)
    assert frequency_score(found_tree(1, [6, 5, 4], 10, [-1, 0, -1])) == pytest.approx(1.0)  # the second is too deep
    assert frequency_score(found_tree(2, [91, 9], 100, [-1, -1])) == pytest.approx(0.91)
    assert frequency_score(DraftTree.empty()) == 0.0


def test_arctic_inference_takes_the_larger_promise_and_text_if_they_are_equal() -> None:
    found = {"prompt-lookup": [matching(1)], "datastore": [found_tree(2, [5, 5], 10, [-1, 0]), DraftTree.empty()]}
    assert arctic_inference(found, lambda: tree([1, 2], [-1, 0], [0.6, 0.4])) == "prompt-lookup"
    assert arctic_inference(found, lambda: tree([1, 2], [-1, 0], [0.9, 0.4])) is None
    assert arctic_inference({"datastore": [DraftTree.empty()]}, DraftTree.empty) is None


class Found:
    """A source of text that finds what it is given, and keeps what it was told."""

    def __init__(self, name: str, trees: list[DraftTree]) -> None:
        self.name, self.trees = name, trees
        self.observed: list[list[int]] = []

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        raise AssertionError

    def draft(self, requests: Sequence[DraftRequest]) -> list[list[DraftTree]]:
        return [self.trees for _ in requests]

    def draft_after(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        raise AssertionError

    def observe(self, request_id: int, tokens: Ids) -> None:
        self.observed.append(tokens.tolist())

    def release(self, request_id: int) -> None:
        pass

    def stats(self) -> dict[str, float]:
        return {"calls": 1}

    def close(self) -> None:
        pass


def test_a_switch_drafts_from_one_source_and_teaches_those_that_drafted() -> None:
    text, network = Found("prompt-lookup", [matching(9)]), MadeUpDrafter(lambda request: tree([7, 8], [-1, 0]))
    drafter = SwitchingDrafter("sam-decoding: made-up", [text], network, sam_decoding)
    request = DraftRequest(1, np.array([1, 2], np.int32), 4)
    assert drafter.propose([request])[0].tokens.tolist() == [0]
    drafter.observe(1, np.array([3], np.int32))
    text.trees = [matching(1)]
    assert drafter.propose([request])[0].tokens.tolist() == [7, 8]
    drafter.observe(1, np.array([7], np.int32))
    assert text.observed == [[3], [7]]
    assert network.observed == [[7]]
    assert drafter.stats() == {"from text": 1, "from the network": 1, "calls": 1}
    drafter.release(1)
    assert network.released == [1]


def test_hindsight_proposes_the_longest_right_path_and_asks_text_behind_it() -> None:
    store = BruteForceRetriever([[5, 6, 7, 8, 9]], VOCAB)
    network = MadeUpDrafter(lambda request: tree([4, 5, 6, 3], [-1, 0, 1, 2]))  # right as far as 4 5 6
    network.name = "eagle"
    [drafter] = make_compared(["hindsight: eagle"], Sources(VOCAB, store, networks=[network])).values()
    assert isinstance(drafter, HindsightDrafter)
    drafter.know(np.array([1, 2, 4, 5, 6, 7, 8, 10], np.int32))
    [found] = drafter.propose([DraftRequest(1, np.array([1, 2], np.int32), 16)])
    assert found.tokens.tolist() == [4, 5, 6, 7, 8]
    assert found.parents.tolist() == [-1, 0, 1, 2, 3]
    assert found.sources.tolist()[3:] == [source_bits("datastore")] * 2
    assert [len(each) for each in drafter.propose([DraftRequest(1, np.array([1, 2], np.int32), 4)])] == [4]
    drafter.know(np.array([1, 2, 11], np.int32))
    assert [len(each) for each in drafter.propose([DraftRequest(1, np.array([1, 2], np.int32), 16)])] == [0]
    drafter.observe(1, np.array([11], np.int32))
    drafter.release(1)
    assert (network.observed, network.released) == ([[11]], [1])


def test_of_several_trees_the_longest_right_path_counts() -> None:
    tokens, marks = right([tree([1, 2], [-1, 0]), tree([9, 1, 2, 3], [-1, -1, 1, 2])], np.array([1, 2, 3, 4], np.int32))
    assert (tokens.tolist(), len(marks)) == ([1, 2, 3], 3)


def test_every_compared_name_can_be_made_and_carries_it() -> None:
    store = BruteForceRetriever([[1, 2, 3]], VOCAB)
    networks = [MadeUpDrafter(lambda request: DraftTree.empty()), MadeUpDrafter(lambda request: DraftTree.empty())]
    networks[0].name, networks[1].name = "eagle", "redrafter"
    names = [*compared_names(["eagle", "redrafter"], True), *useless_names(True)[1:]]
    made = make_compared(names, Sources(VOCAB, store, store, networks))
    assert list(made) == [
        "datastore", "prompt-lookup", "eagle", "redrafter", "sam-decoding: eagle", "sam-decoding: redrafter",
        "arctic-inference: eagle", "arctic-inference: redrafter", "hybrid: eagle", "hybrid: redrafter", "hybrid",
        "hybrid + useless network", "hybrid + unrelated datastore",
    ]  # fmt: skip
    for drafter in made.values():
        [drafted] = drafter.propose([DraftRequest(1, np.array([1, 2], np.int32), 8)])
        assert len(drafted) <= 8
    assert singles(["eagle"], False) == ["prompt-lookup", "eagle"]


@pytest.mark.parametrize("beside", ["eagle", "hierarchy"])
def test_one_tree_hears_a_useless_network(beside: str) -> None:
    right = DraftTree(
        np.array([3], np.int32), np.array([-1], np.int32), np.array([0.5], np.float32), np.array([4], np.uint32)
    )
    network = MadeUpDrafter(lambda request: right)
    network.name = beside
    [drafter] = make_compared(["hybrid + useless network"], Sources(VOCAB, networks=[network])).values()
    [found] = drafter.propose([DraftRequest(1, np.array([1, 2], np.int32), 16)])
    useless = found.sources == USELESS
    assert useless.sum() > 8
    assert found.scores[useless].min() > 0


@pytest.mark.parametrize(
    "name", ["sam-decoding: eagle", "hindsight: eagle", "hindsight", "hybrid + unrelated datastore", "none", "oops"]
)
def test_a_drafter_that_cannot_be_made_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="drafter"):
        make_compared([name], Sources(VOCAB))


def options(**changes: object) -> HybridOptions:
    return HybridOptions(DecodingOptions("m", (Path("p"),), drafters=()), Path("out"), **changes)  # type: ignore[arg-type]


def test_options_are_checked() -> None:
    assert options().names == ("prompt-lookup", HYBRID)
    assert options(useless=True).names == (HYBRID, "hybrid + useless network")
    for changes in (
        {"nodes": (0,)},
        {"nodes": (8, 8)},
        {"parts": ("x",)},
        {"temperatures": ()},
        {"unrelated": "u"},
        {"drafters": ("hindsight: eagle",)},
    ):
        with pytest.raises(InvalidArgument):
            options(**changes)


def test_settings_say_what_rows_depend_on() -> None:
    assert options().settings() == options(nodes=(4,), temperatures=(1.0,), parts=("nodes",)).settings()
    assert options().settings() != options(excluded=frozenset({"a"})).settings()
    assert options().settings() != options(drafters=("prompt-lookup",)).settings()


def test_groups_take_turns() -> None:
    prompts = [(Prompt(name, name[0], ()), [1]) for name in ("a1", "a2", "a3", "b1", "c1", "c2")]
    assert [prompt.name for prompt, _ in in_turn(prompts)] == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_log_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    first = RunLog(path, {"a": (1, 2)})
    first.add({"part": "x", "value": 1})
    with path.open("a") as file:
        file.write('{"part": "y", "val')
    second = RunLog(path, {"a": [1, 2]})
    assert (second.rows, second.runs) == ([{"part": "x", "value": 1}], 2)
    assert second.has(part="x")
    assert not second.has(part="x", value=2)
    second.add({"part": "y"})
    assert RunLog(path, {"a": [1, 2]}).rows == [{"part": "x", "value": 1}, {"part": "y"}]
    with pytest.raises(InvalidArgument, match=r"other settings \(a\)"):
        RunLog(path, {"a": [1]})
    path.write_text("oops\n" + path.read_text())
    with pytest.raises(Corruption, match="no JSON"):
        RunLog(path, {"a": [1, 2]})


def test_time_left_is_the_mean_so_far_times_what_is_left() -> None:
    times = iter([0.0, 100.0, 400.0])
    left = TimeLeft("M", 6, lambda: next(times))
    assert left.done("a") == "M: 1 of 6, 8 min left: a"
    assert left.done("b") == "M: 2 of 6, 13 min left: b"


def row(group: str, prompt: str, **drafters: tuple[int, int]) -> dict[str, object]:
    counts = {
        name: {
            "tokens": tokens, "passes": passes, "verified": 2 * passes, "missed": 0, "plain_seconds": 0.0, "seconds": 0.0,
            "accepted_by_source": {"datastore": tokens - passes},
        }
        for name, (tokens, passes) in drafters.items()
    }  # fmt: skip
    return {"part": "nodes", "temperature": 0.0, "nodes": 8, "group": group, "prompt": prompt, "drafters": counts}


def test_summary_sums_by_set_and_takes_the_mean_of_sets() -> None:
    rows = [
        row("code", "a", datastore=(30, 20), hybrid=(30, 10)),
        row("code", "b", datastore=(30, 10), hybrid=(30, 10)),
        row("chat", "c", datastore=(20, 20), hybrid=(20, 20)),
        row("chat", "one token"),
    ]
    [found] = summarize(rows, ["datastore"])["nodes"]
    table = found["table"]
    assert (table["code"]["datastore"]["M"], table["code"][HYBRID]["M"]) == (2.0, 3.0)
    assert (table["all"]["datastore"]["M"], table["all"][HYBRID]["M"]) == (80 / 50, 80 / 40)
    assert (table[MEAN]["datastore"]["M"], table[MEAN][HYBRID]["M"]) == (1.5, 2.0)
    assert table["all"][HYBRID]["accepted_by_source"] == {"datastore": 40}
    assert table["all"][HYBRID]["nodes_per_pass"] == 2.0
    assert found["prompts"] == 4
    assert found["ratios"]["code"] == {"best_single": "datastore", "best": 2.0, HYBRID: 3.0, "ratio": 1.5}
    assert found["loss"]["code"] == {}


def test_ratios_are_to_the_best_source_of_each_set() -> None:
    table = {"s": {"a": {"M": 1.0}, "b": {"M": 2.0}, HYBRID: {"M": 3.0}}, "t": {"a": {"M": 2.0}, HYBRID: {"M": 1.0}}}
    found = ratios(table, "M", ["a", "b"])
    assert [(each["best_single"], each["ratio"]) for each in found.values()] == [("b", 1.5), ("a", 0.5)]
    assert ratios(table, "M", ["none"]) == {}
