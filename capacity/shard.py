"""Costs of one shard: its bytes, and its calls."""

from __future__ import annotations

import math
from dataclasses import dataclass

from suffolk.capacity.index_size import directory_bytes, segment_bytes
from suffolk.capacity.need import Need
from suffolk.capacity.queueing import NORMAL, Response, Service
from suffolk.capacity.service_costs import ServiceCosts
from suffolk.serving.store.draft_service.service import CHUNK

LIVE_SEGMENTS = 16
"""The most segments of a live store beside the datastore. Each counts as a segment of ``ServiceCosts.segment_tokens`` tokens."""
TAIL = 0.99
GRAIN = 8
"""Contexts that a search thread takes at once (csrc/bindings/searched.h)."""


@dataclass(frozen=True, slots=True)
class ShardModel:
    """One of ``shards`` equal parts of the datastore. Each of its servers has ``threads`` search threads, and as many cores."""

    need: Need
    costs: ServiceCosts
    shards: int
    threads: int = 1

    @property
    def processes(self) -> int:
        """Server processes of a node."""
        return max(1, self.need.node.cores // self.threads)

    @property
    def segments(self) -> int:
        """Segments of the datastore that a search of this shard reads."""
        return -(-self.need.segments // self.shards)

    @property
    def disk_bytes(self) -> float:
        """Bytes of the shard's files."""
        return index_bytes(self.need, self.costs) / self.shards

    @property
    def resident_bytes(self) -> float:
        """Bytes of the shard's files in the memory of each node."""
        always = directory_bytes(self.need.tokens, self.need.segments, self.need.vocab_size) / self.shards
        return max(always, self.need.in_memory * self.disk_bytes)

    @property
    def memory_bytes(self) -> float:
        """Memory of a node: files and server processes."""
        return self.resident_bytes + self.processes * self.costs.process_bytes

    @property
    def search_s(self) -> float:
        """Seconds of a context's search."""
        live = LIVE_SEGMENTS * self.costs.segment_s if self.need.append_tokens else 0.0
        return self.segments * self.costs.search_s(self.need.tokens_of_segment) + live

    @property
    def service(self) -> Service:
        """Time of a call at a server that does nothing else.

        The server searches one chunk of CHUNK contexts after another. A chunk ends when the slowest of its threads ends.
        """
        batch, costs = self.need.batch, self.costs
        chunk = min(batch, CHUNK)
        threads = min(self.threads, -(-chunk // GRAIN))
        chunks, share = batch / chunk, chunk / threads
        deviation = costs.search_spread * self.search_s
        most = NORMAL.inv_cdf((threads - 0.375) / (threads + 0.25))  # Blom: the largest of so many normal variables
        longest = most * deviation * math.sqrt(min(GRAIN, chunk))
        mean = costs.server_call_s + batch * costs.server_context_s + chunks * (share * self.search_s + longest)
        return Service(mean, deviation * math.sqrt(chunks * share) / mean)

    @property
    def rounds(self) -> int:
        """Number of calls to the shard for one batch of drafts."""
        return self.need.rounds if self.shards > 1 else 1

    @property
    def calls_per_second(self) -> float:
        """Calls that come to the shard."""
        return self.need.drafts_per_second * self.rounds

    @property
    def busy_servers(self) -> float:
        """Mean number of servers that are busy with the shard's calls."""
        return self.calls_per_second * self.service.mean

    def utilisation(self, nodes: float) -> float:
        """Share of time that a server is busy if the shard has this many nodes."""
        return self.busy_servers / (nodes * self.processes)

    @property
    def reads_per_call(self) -> float:
        """Disk reads of a call."""
        return self.need.batch * self.segments * self.costs.cold_reads * self.need.miss_share

    @property
    def received_bytes(self) -> float:
        """Bytes of a call's request."""
        return self.costs.request_call_bytes + self.need.batch * self.costs.request_context_bytes

    @property
    def sent_bytes(self) -> float:
        """Bytes of a call's reply."""
        return self.need.batch * self.costs.reply_context_bytes

    @property
    def client_s(self) -> float:
        """Processor seconds of a worker for its calls to all shards in a step. They run one after another in its process."""
        return self.rounds * self.shards * (self.costs.client_call_s + self.need.batch * self.costs.client_context_s)

    def response(self, nodes: float) -> Response:
        """Times of calls if each call goes to a random server of ``nodes`` nodes. The utilisation must be below 1."""
        return Response(self.service, self.utilisation(nodes))

    def latency(self, nodes: float) -> float:
        """Seconds within which 99 % of the steps have the answers of all shards; infinite if there are too few nodes.

        With infinite ``nodes``, no call waits for another.
        """
        if self.utilisation(nodes) >= 1:
            return math.inf
        response = self.response(nodes)
        middle, tail = response.quantile(0.5, self.shards), response.quantile(TAIL, self.shards)
        fixed = self.costs.wait_s + self.need.round_trip_ms / 1e3 + self.reads_per_call * self.costs.read_s
        # the rounds vary independently, so their deviations add up by squares
        rounds = self.rounds * (middle + fixed) + math.sqrt(self.rounds) * (tail - middle)
        return self.client_s + rounds


def index_bytes(need: Need, costs: ServiceCosts) -> float:
    """Bytes of the whole datastore's files, once."""
    tokens = need.tokens / need.segments
    one = segment_bytes(tokens, tokens / need.document_tokens, need.vocab_size, costs.table_bytes)
    return need.segments * one
