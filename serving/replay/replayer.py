"""Lets a drafter draft along recorded texts, with the planner and the accounts of the engine, and without a target.

Which drafted tokens the target accepts is known: those that the text goes on with."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.engine.loop.draft_counts import places
from suffolk.serving.engine.loop.drafter import Drafter, DraftRequest, mixed, tree_of
from suffolk.serving.engine.loop.drafter_pool import Spent, checked_tree
from suffolk.serving.engine.loop.stats import GenerationStats
from suffolk.serving.engine.model.tree_layout import cut
from suffolk.serving.engine.policy.cost_model import CostModel
from suffolk.serving.engine.policy.ledger import Ledger
from suffolk.serving.engine.policy.planner import DraftCandidate, Planner
from suffolk.serving.engine.policy.verify_all_planner import VerifyAllPlanner
from suffolk.serving.engine.sampling.verification import accept
from suffolk.serving.replay.recorded_states import SLOT, RecordedStates
from suffolk.serving.replay.recording import Recording

_NO_TOKEN = 1 << 40
"""What the target says behind the text, which no node is."""
PassSeconds = Callable[[int, float], float]
"""(rows, cached tokens) -> seconds of a pass of the target for one request."""


@dataclass(slots=True)
class Replayed:
    """What became of one recording.

    Attributes:
        recording: which.
        stats: as an engine counts, without seconds and finish.
        plain_seconds, seconds: what decoding behind the prompt would take without drafts, by the costs, and with them; 0
            without costs.
    """

    recording: Recording
    stats: GenerationStats
    plain_seconds: float = 0.0
    seconds: float = 0.0


@dataclass(slots=True)
class _Text:
    """A recording on its way: ``tokens[:length]`` are there, and the model had room for ``most``."""

    number: int
    recording: Recording
    ledger: Ledger
    found: Replayed
    tokens: npt.NDArray[np.int32] = field(init=False)
    length: int = field(init=False)
    most: int = field(init=False)

    def __post_init__(self) -> None:
        prompt = self.recording.prompt
        self.tokens = np.concatenate([prompt, self.recording.generated])
        self.tokens.flags.writeable = False
        self.length = len(prompt) + 1  # the prompt's pass gives the first token
        self.most = len(prompt) + self.recording.settings.max_new_tokens


class Replayer:
    """One drafter, which learns from text to text as in an engine with one slot. Not thread-safe.

    Attributes:
        drafter: who drafts; ``close`` is the caller's.
    """

    def __init__(
        self,
        drafter: Drafter,
        max_nodes: int = 64,
        costs: CostModel | None = None,
        states: RecordedStates | None = None,
        pass_seconds: PassSeconds | None = None,
        draft_seconds: float | None = None,
    ) -> None:
        """Nothing is drafted yet.

        Args:
            max_nodes: the largest tree, 1..1024.
            costs: what the planner believes at first that passes cost; it chooses, as in service. None: every step drafts, and all
                nodes are verified.
            states: what networks read of the target; None for drafters that read tokens alone.
            pass_seconds: what passes really take; None for what ``costs`` say.
            draft_seconds: what a draft is taken to cost; None for what it takes here.
        """
        self.drafter = drafter
        self._max_nodes = max_nodes
        self._states = states
        self._planner = VerifyAllPlanner() if costs is None else Planner(costs.copy())
        self._by_costs = _by(costs)
        self._pass_seconds = pass_seconds or self._by_costs
        self._draft_seconds = draft_seconds
        self._mixed = mixed(drafter)
        self._numbers = itertools.count(1)

    def replay(self, recording: Recording) -> Replayed:
        """Draft along one text, from its second token to its end. Raises what the drafter raises; it has then been released."""
        stats = GenerationStats(prompt_tokens=len(recording.prompt))
        stats.add_tokens((0,))
        found = Replayed(recording, stats)
        ledger = self._planner.open(self.drafter.name, self._mixed is not None)
        text = _Text(next(self._numbers), recording, ledger, found)
        missed = self._missed()
        if self._states is not None:
            self._states.begin(text.tokens, len(recording.prompt))
        try:
            self._advance(text)
            while text.length < len(text.tokens):
                self._step(text)
        finally:
            self.drafter.release(text.number)
            text.ledger.close()
        stats.missed["drafts"] = self._missed() - missed
        return found

    def _step(self, text: _Text) -> None:
        stats, context = text.found.stats, text.length - 1
        offers, tree = self._draft(text, context)
        path = accepted(tree, text.tokens[text.length :])
        new = min(len(path) + 1, len(text.tokens) - text.length)
        stats.add_tokens(tuple([*tree.sources[path].tolist(), 0][:new]))
        stats.steps += 1
        stats.drafted.verified.update(places(tree))
        rows = 1 + len(tree)
        spent = self._pass_seconds(rows, context)
        begin, text.length = text.length, text.length + new
        learned = self._advance(text)
        for offer in offers:
            offer.accept(path, new - 1)
            learning = time.perf_counter()
            self.drafter.observe(text.number, text.tokens[begin : text.length])
            if self._draft_seconds is None:
                offer.seconds += time.perf_counter() - learning + learned
            text.found.seconds += offer.seconds + offer.network_seconds + offer.reading
        self._planner.record(offers, 1, rows, context, spent)
        text.found.seconds += spent
        text.found.plain_seconds += sum(self._by_costs(1, context + ahead) for ahead in range(new))

    def _advance(self, text: _Text) -> float:
        """Let the drafter have what the target made of the text so far; the seconds in which it learned from that."""
        return 0.0 if self._states is None else self._states.advance(text.number, text.length, not text.ledger.rests)

    def _draft(self, text: _Text, context: int) -> tuple[list[DraftCandidate], DraftTree]:
        """The step's offer, if it has one, and what of it is verified."""
        room = text.most - text.length - 1
        if room <= 0 or not text.ledger.should_propose():
            return [], DraftTree.empty()
        spent, begin = Spent.so_far(self.drafter), time.perf_counter()
        proposal = tree_of(self.drafter.propose([self._request(text, context)])[0])
        seconds = time.perf_counter() - begin
        own, networks, reading = (Spent.so_far(self.drafter) - spent).of(seconds)
        if self._draft_seconds is not None:
            own, networks, reading = self._draft_seconds, 0.0, 0.0
        proposal = checked_tree(proposal, text.recording.vocab_size, self._max_nodes)
        text.found.stats.proposals += 1
        text.found.stats.drafted.proposed.update(places(proposal))
        tree = cut(proposal, room)
        offer = DraftCandidate(
            self.drafter.name,
            text.ledger,
            tree.scores,
            own,
            network_seconds=networks,
            reading=reading,
            of_networks=None if self._mixed is None else self._mixed.owed(text.number, tree),
        )
        self._planner.choose([offer], 1, 1, context)
        return [offer], tree.head(offer.verified)

    def _request(self, text: _Text, context: int) -> DraftRequest:
        token_seconds = self._planner.costs.time(1, 1, context)
        return DraftRequest(
            text.number,
            text.tokens[: text.length],
            self._max_nodes,
            len(text.recording.prompt),
            text.recording.settings,
            token_seconds,
            token_seconds * self._planner.draft_stake(text.ledger),
            -1 if self._states is None else SLOT,
            text.recording.request_class,
            text.ledger.rate,
            self._planner.row_seconds(1, context),
        )

    def _missed(self) -> int:
        return int(self.drafter.stats().get("missed", 0))


def accepted(tree: DraftTree, text: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """int64[k], the nodes that a target which says ``text`` accepts, from the top down."""
    depths = np.concatenate([[0], tree.depths()])
    ahead = np.append(text.astype(np.int64), _NO_TOKEN)
    says = ahead[np.minimum(depths, len(text))]  # the same at all nodes of a depth
    return accept(tree.tokens, tree.parents, says)


def _by(costs: CostModel | None) -> PassSeconds:
    if costs is None:
        return lambda rows, context: 0.0
    fixed = costs.copy()
    return lambda rows, context: fixed.time(rows, 1, context)
