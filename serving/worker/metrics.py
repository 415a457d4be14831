"""Prometheus metrics of the worker."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from suffolk.datastore.retriever import Retriever
from suffolk.serving.clients.fanout.datastore import FanoutDatastore
from suffolk.serving.clients.text_appender import TextAppender
from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.net.admission import AdmissionController
from suffolk.serving.net.metrics import RequestMetrics, labelled
from suffolk.serving.store.draft_service.datastore_metrics import DatastoreMetrics

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
COUNTERS = {
    "passes": ("suffolk_target_passes", "Forward passes of the target"),
    "rows": ("suffolk_target_rows", "Rows of the target's passes: prompt tokens, last tokens, nodes of draft trees"),
    "batched_requests": ("suffolk_batched_requests", "Requests in a pass, summed over passes"),
    "prompt_tokens": ("suffolk_prompt_tokens", "Prompt tokens read"),
    "cached_tokens": ("suffolk_cached_prompt_tokens", "Prompt tokens not read, because the KV cache had their rows"),
    "tokens": ("suffolk_generated_tokens", "Tokens generated"),
    "steps": ("suffolk_decode_steps", "Passes after the prompt, summed over requests"),
    "draft_calls": ("suffolk_draft_calls", "Steps in which a drafter was called, summed over requests"),
}
"""Key of ``Engine.stats`` -> name and help text of its counter."""
LABELLED_COUNTERS = {
    "finished": ("suffolk_requests_finished", "Requests that ended, by finish reason", "reason"),
    "draft_failures": ("suffolk_draft_failures", "Failed drafter calls, by reason", "reason"),
    "seconds": ("suffolk_step_seconds", "Seconds of steps, by part", "part"),
}
VLLM_COUNTERS = {
    "drafted_steps": ("vllm:spec_decode_num_drafts", "Steps in which drafted tokens were verified"),
    "nodes_verified": ("vllm:spec_decode_num_draft_tokens", "Drafted tokens that the target verified"),
    "accepted": ("vllm:spec_decode_num_accepted_tokens", "Drafted tokens in texts"),
}
"""Counters with vLLM's names, so that dashboards for vLLM work for a worker."""
VLLM_POSITIONS = "vllm:spec_decode_num_accepted_tokens_per_pos"
DRAFTED_COUNTERS = {
    "proposed": "Nodes that drafters returned",
    "verified": "Nodes that the target verified",
    "accepted": "Drafted tokens in texts",
    "earned": "Accepted tokens that saved a target pass",
}
_LABELS = ("datastore", "shard", "replica")
REPLICA_COUNTERS = {
    "calls": "Drafts and lookups sent to the server",
    "errors": "Calls that failed, or that took too long",
    "hedges": "Calls sent to the server because another one was late",
    "ejections": "Times that the server was ejected",
}
"""Attribute of ``ReplicaClient`` -> help text of its counter."""


class WorkerMetrics(RequestMetrics):
    """Metrics of calls and of the engine. Thread-safe.

    Attributes:
        recording_failures: counter of texts that could not be recorded.
    """

    def __init__(self, engine: Engine, admission: AdmissionController, datastores: Mapping[str, Retriever]) -> None:
        super().__init__(admission, SECONDS)
        self.registry.register(EngineMetrics(engine))
        self.registry.register(DatastoreMetrics(datastores))
        self.registry.register(FanoutMetrics(datastores.values()))
        self.recording_failures = Counter(
            "suffolk_recording_failures", "Texts that could not be recorded", registry=self.registry
        )


class AppenderMetrics(Collector):
    """``suffolk_remembered_texts_total`` by outcome, and ``suffolk_remember_waiting``."""

    def __init__(self, appender: TextAppender) -> None:
        self._appender = appender

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        stats = self._appender.stats()
        yield GaugeMetricFamily(
            "suffolk_remember_waiting", "Finished texts that wait to be appended", stats.pop("waiting")
        )
        texts = [((outcome,), count) for outcome, count in stats.items()]
        text = "Finished texts, by what became of them"
        yield labelled(CounterMetricFamily, "suffolk_remembered_texts", text, ("outcome",), texts)


class EngineMetrics(Collector):
    """Converts ``Engine.stats`` to metrics at each scrape."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        stats = self._engine.stats()
        yield GaugeMetricFamily("suffolk_requests_running", "Requests in a slot", stats["running"])
        yield GaugeMetricFamily("suffolk_requests_waiting", "Requests that wait for a slot", stats["waiting"])
        yield GaugeMetricFamily("suffolk_slots", "Requests that can run at the same time", self._engine.slots)
        yield GaugeMetricFamily("suffolk_kv_cache_bytes", "Size of the KV cache", self._engine.cache_bytes)
        for key, (name, text) in COUNTERS.items():
            yield CounterMetricFamily(name, text, stats[key])
        for key, (name, text, label) in LABELLED_COUNTERS.items():
            found = [((value,), count) for value, count in stats[key].items()]
            yield labelled(CounterMetricFamily, name, text, (label,), found)
        for stage, text in DRAFTED_COUNTERS.items():
            counts = [((source_name(row["source"]), str(row["depth"])), row[stage]) for row in stats["drafted"]]
            name, text = f"suffolk_draft_tokens_{stage}", f"{text}, by drafter and depth"
            yield labelled(CounterMetricFamily, name, text, ("source", "depth"), counts)
        yield from self._vllm(stats)

    def _vllm(self, stats: Mapping[str, Any]) -> Iterator[CounterMetricFamily]:
        model = self._engine.target.name
        for key, (name, text) in VLLM_COUNTERS.items():
            yield labelled(CounterMetricFamily, name, text, ("model_name",), [((model,), stats[key])])
        accepted: Counts[int] = Counts()
        for row in stats["drafted"]:
            accepted[row["depth"] - 1] += row["accepted"]
        counts = [((model, str(position)), count) for position, count in sorted(accepted.items())]
        text = "Drafted tokens in texts, by depth from 0"
        yield labelled(CounterMetricFamily, VLLM_POSITIONS, text, ("model_name", "position"), counts)


class FanoutMetrics(Collector):
    """Calls, errors, hedges, ejections and state of each server. Thread-safe."""

    def __init__(self, datastores: Iterable[Retriever]) -> None:
        """``datastores``: only datastores with several servers are reported."""
        self._datastores = [store for store in datastores if isinstance(store, FanoutDatastore)]

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        replicas = [
            ((store.name, str(number), replica.label), replica)
            for store in self._datastores
            for number, shard in enumerate(store.servers.shards)
            for replica in shard
        ]
        for name, text in REPLICA_COUNTERS.items():
            counts = [(labels, getattr(replica, name)) for labels, replica in replicas]
            yield labelled(CounterMetricFamily, f"suffolk_replica_{name}", text, _LABELS, counts)
        partial = [
            ((each.name, reason), count) for each in self._datastores for reason, count in each.servers.partial.items()
        ]
        text = "Answers that may lack text, by reason"
        yield labelled(CounterMetricFamily, "suffolk_partial_answers", text, ("datastore", "reason"), partial)
        up = [(labels, replica.is_up) for labels, replica in replicas]
        text = "1: the server gets calls; 0: it is ejected"
        yield labelled(GaugeMetricFamily, "suffolk_replica_up", text, _LABELS, up)
