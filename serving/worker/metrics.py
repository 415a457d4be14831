"""What a worker counts, ready for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from suffolk.datastore.draft_tree import source_name
from suffolk.serving.engine.loop.engine import Engine
from suffolk.serving.transport.request_metrics import RequestMetrics

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
COUNTS = {
    "passes": "Forward passes of the target",
    "rows": "Rows in those passes: tokens of prompts, last tokens, nodes of draft trees",
    "turns": "Requests that took part in a pass, summed over passes",
    "prompt_tokens": "Tokens of prompts read",
    "tokens": "Tokens generated",
    "steps": "Passes behind the prompt's, summed over requests",
    "proposals": "Steps in which a drafter was asked, summed over requests",
}
STAGE_TEXTS = {
    "proposed": "Nodes of draft trees that came",
    "verified": "Nodes that the target looked at",
    "accepted": "Drafted tokens in texts",
    "earned": "Drafted tokens in texts that took no pass of their own",
}


class Metrics(RequestMetrics):
    """Requests and what the engine counts. Thread-safe.

    Attributes:
        unrecorded: texts that could not be recorded.
    """

    def __init__(self, engine: Engine, in_flight: Callable[[], int]) -> None:
        super().__init__(in_flight, SECONDS)
        self.registry.register(EngineMetrics(engine))
        self.unrecorded = Counter(
            "suffolk_unrecorded", "Texts that could not be added to the file of recordings", registry=self.registry
        )


class EngineMetrics(Collector):
    """The engine's own numbers, looked up when somebody asks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        stats = self._engine.stats()
        yield GaugeMetricFamily("suffolk_running", "Requests in a slot", stats["running"])
        yield GaugeMetricFamily("suffolk_waiting", "Requests that wait for a slot", stats["waiting"])
        yield GaugeMetricFamily("suffolk_slots", "Requests that can run at once", self._engine.slots)
        yield GaugeMetricFamily("suffolk_cache_bytes", "Memory of the cache", self._engine.cache_bytes)
        for name, text in COUNTS.items():
            yield CounterMetricFamily(f"suffolk_{name}", text, stats[name])
        for stage, text in STAGE_TEXTS.items():
            family = CounterMetricFamily(
                f"suffolk_{stage}", f"{text}, by who proposed them and how deep", labels=("source", "depth")
            )
            for row in stats["drafted"]:
                family.add_metric((source_name(row["source"]), str(row["depth"])), row[stage])
            yield family
        yield _labelled("suffolk_generations", "Requests that ended, by why", "finish", stats["finished"])
        yield _labelled("suffolk_missed", "DrafterPool that failed, by reason", "reason", stats["missed"])
        yield _labelled("suffolk_engine_seconds", "Seconds of steps, by part", "part", stats["seconds"])


def _labelled(name: str, text: str, label: str, values: dict[str, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
