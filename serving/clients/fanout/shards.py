"""Combines answers of several shards into one: matches in one round, drafts in up to three."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.limits import MAX_BATCH_NODES, MAX_COUNTED_NODES, MAX_LISTED_NODES
from suffolk.datastore.retriever import Match, PartialMatch
from suffolk.datastore.tree_paths import Paths
from suffolk.serving.clients.fanout.hedged_call import HedgedCall, run_calls
from suffolk.serving.clients.fanout.replica_client import ReplicaClient, Send
from suffolk.serving.clients.fanout.replica_set import ReplicaSet
from suffolk.serving.clients.fanout.shard_merge import ShardMerge
from suffolk.serving.clients.remote_datastore import RemoteDatastore

Select = Callable[[RemoteDatastore], RemoteDatastore]
"""Limits a connection to the datastores that a query searches."""


class ShardCall:
    """One call to all shards, within one deadline. Not thread-safe.

    Attributes:
        lost: shards that gave no answer in the first round.
        unproven: drafts with unproven counts: a shard gave no answer in a later round, or has too many continuations.
    """

    def __init__(self, shards: Sequence[ReplicaSet], select: Select, deadline: float) -> None:
        """``deadline``: seconds for all rounds together."""
        self.lost, self.unproven = 0, 0
        hidden = any(replica.remote.hides_text for shard in shards for replica in shard)
        self._lacks_text = hidden and len(shards) > 1  # a shard may hide text that is frequent in all shards together
        self._shards, self._select = shards, select
        self._end = time.perf_counter() + deadline
        self._chosen: dict[int, ReplicaClient] = {}  # the replicas that answered first; later rounds ask them too

    def matches(self, query: ContextQuery) -> list[Match]:
        """The longest match of all shards for each context. Counts are summed over shards. Raises the first error if no
        shard answers."""
        found = self._first_round(lambda remote, seconds: self._select(remote).start_matches(query, seconds))
        return [self._match(each) for each in zip(*found.values(), strict=True)]

    def drafts(self, query: ContextQuery) -> list[DraftTree]:
        """The draft tree of all shards for each context. Raises the first error if no shard answers."""
        found = self._first_round(lambda remote, seconds: self._select(remote).start_drafts(query, seconds))
        trees = [_longest({shard: trees[at] for shard, trees in found.items()}) for at in range(len(query.contexts))]
        merges = {at: ShardMerge(each, query.budgets[at]) for at, each in enumerate(trees) if len(each) > 1}
        unproven = self._list_more(query, merges) | self._count(query, merges)
        self.unproven = len(unproven)
        answers = []
        for at, each in enumerate(trees):
            if at in merges:
                answers.append(merges[at].result(self._is_partial or at in unproven))
            else:
                [tree] = each.values()
                answers.append(replace(tree, partial=True) if self._is_partial else tree)
        return answers

    def _list_more(self, query: ContextQuery, merges: Mapping[int, ShardMerge]) -> set[int]:
        """The second round: shards list all nodes from the threshold on. Returns the queries whose nodes are not all
        listed."""
        wanted: dict[int, list[tuple[int, int]]] = {}  # shard -> places in the query, and thresholds
        for at, merge in merges.items():
            least, shards = merge.threshold()
            for shard in shards:
                wanted.setdefault(shard, []).append((at, least))

        def send(shard: int) -> Send:
            return lambda remote, seconds: self._select(remote).start_drafts(
                self._longer(query, merges, wanted[shard]), seconds
            )

        unlisted = {(shard, at) for shard, queries in wanted.items() for at, _ in queries}
        for shard, trees in self._round({shard: send(shard) for shard in wanted}).items():
            for (at, least), tree in zip(wanted[shard], trees, strict=True):
                if tree.match_length != merges[at].match_length:
                    continue  # the shard serves another generation now
                if merges[at].add(shard, tree, _share(len(trees)), least):
                    unlisted.remove((shard, at))
        return {at for _, at in unlisted}

    def _count(self, query: ContextQuery, merges: Mapping[int, ShardMerge]) -> set[int]:
        """The third round: shards count the nodes that others have sent. Returns the queries whose nodes are not all
        counted."""
        wanted: dict[int, list[tuple[int, Paths]]] = {}
        uncounted: set[tuple[int, int]] = set()
        room = dict.fromkeys(range(len(self._shards)), MAX_COUNTED_NODES)
        for at, merge in merges.items():
            for shard, paths in merge.missing().items():
                uncounted.add((shard, at))
                room[shard] -= len(paths.tokens)
                if room[shard] >= 0:
                    wanted.setdefault(shard, []).append((at, paths))

        def send(shard: int) -> Send:
            contexts = [_matched(query, at, merges[at]) for at, _ in wanted[shard]]
            trees = [paths for _, paths in wanted[shard]]
            return lambda remote, seconds: self._select(remote).start_counts(contexts, trees, seconds)

        for shard, counts in self._round({shard: send(shard) for shard in wanted}).items():
            for (at, paths), each in zip(wanted[shard], counts, strict=True):
                merges[at].add_counts(shard, paths, each.tolist())
                uncounted.remove((shard, at))
        return {at for _, at in uncounted}

    def _longer(
        self, query: ContextQuery, merges: Mapping[int, ShardMerge], wanted: Sequence[tuple[int, int]]
    ) -> ContextQuery:
        lengths = [merges[at].match_length for at, _ in wanted]
        return ContextQuery(
            [_matched(query, at, merges[at]) for at, _ in wanted],
            max(lengths),
            min(lengths),
            query.max_depth,
            _share(len(wanted)),
            least_counts=[least for _, least in wanted],
        )

    def _first_round(self, send: Send) -> dict[int, list[Any]]:
        calls = {shard: HedgedCall(replicas, send, self._seconds_left()) for shard, replicas in enumerate(self._shards)}
        run_calls(list(calls.values()))
        found = self._answers(calls)
        self.lost = len(calls) - len(found)
        if not found:
            error = next(iter(calls.values())).error
            assert error is not None
            raise error
        return found

    def _round(self, sends: Mapping[int, Send]) -> dict[int, list[Any]]:
        """The answers of the shards that answer in time."""
        if not sends or self._seconds_left() <= 0:
            return {}
        calls = {
            shard: HedgedCall(self._shards[shard], send, self._seconds_left(), self._chosen.get(shard))
            for shard, send in sends.items()
        }
        run_calls(list(calls.values()))
        return self._answers(calls)

    def _answers(self, calls: Mapping[int, HedgedCall]) -> dict[int, list[Any]]:
        found = {}
        for shard, call in calls.items():
            if call.winner is not None:
                self._chosen[shard] = call.winner
                found[shard] = call.answer
        return found

    def _match(self, found: Sequence[Match]) -> Match:
        length = max(match.length for match in found)
        count = sum(match.count for match in found if match.length == length)
        return PartialMatch(length, count) if self._is_partial else Match(length, count)

    @property
    def _is_partial(self) -> bool:
        return self.lost > 0 or self._lacks_text

    def _seconds_left(self) -> float:
        return self._end - time.perf_counter()


def _longest(trees: Mapping[int, DraftTree]) -> dict[int, DraftTree]:
    """The trees of the shards with the longest match. Other shards do not hold the matched text. Without a match, one
    tree."""
    length = max(tree.match_length for tree in trees.values())
    longest = {shard: tree for shard, tree in trees.items() if tree.match_length == length}
    return longest if length else dict(list(longest.items())[:1])


def _share(queries: int) -> int:
    """Nodes that a query of the second round may have."""
    return min(MAX_LISTED_NODES, MAX_BATCH_NODES // queries)


def _matched(query: ContextQuery, at: int, merge: ShardMerge) -> Any:
    """The match of a context."""
    context = query.contexts[at]
    return context[len(context) - merge.match_length :]
