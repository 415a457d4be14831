"""Measurements of datastores: searched, served, built, larger than memory, and growing."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.benchmarks.datastore_options import (
    BuildingOptions,
    CountingOptions,
    LiveBenchOptions,
    MemoryOptions,
    RetrievalBenchOptions,
    ServiceOptions,
)
from suffolk.cli.bench.report_options import ReportOptions, WorkdirOptions
from suffolk.cli.options.setting import passed_on
from suffolk.cli.options.values import comma_list
from suffolk.datastore.settings import option


@dataclass(frozen=True, kw_only=True)
class BenchRetrieval(WorkdirOptions, RetrievalBenchOptions):
    """Measure the latency of lookups and drafts, in this process and over gRPC."""

    EXAMPLES = "suffolk bench retrieval STORE --against draftretriever --grpc --json retrieval.json"

    def run(self) -> int:
        from suffolk.benchmarks.retrieval import measure, report

        outcome, settings = self.outcome("retrieval"), passed_on(self, RetrievalBenchOptions, workdir=self.folder)
        return outcome.finish(settings, measure.measure_retrieval(settings), report)


@dataclass(frozen=True, kw_only=True)
class BenchService(ReportOptions, ServiceOptions):
    """Latency and throughput of a draft service, processor time at both ends, and overload."""

    EXAMPLES = "suffolk bench service STORE --json service.json"

    def run(self) -> int:
        from suffolk.benchmarks.service import measure

        outcome, settings = self.outcome("service"), passed_on(self, ServiceOptions)
        return outcome.finish(settings, measure.measure_service(settings), measure)


@dataclass(frozen=True, kw_only=True)
class BenchCounts(WorkdirOptions, CountingOptions):
    """Compare counts of token sequences and bytes a token with infini-gram on the same tokens."""

    EXAMPLES = "suffolk bench counts STORE --lengths 1 2 4 8 --json counts.json"

    def run(self) -> int:
        from suffolk.benchmarks.counts import measure

        outcome, settings = self.outcome("counts"), passed_on(self, CountingOptions, workdir=self.folder)
        return outcome.finish(settings, measure.measure_counting(settings), measure)


@dataclass(frozen=True, kw_only=True)
class BenchBuild(WorkdirOptions, BuildingOptions):
    """Measure the throughput and memory of building a datastore."""

    EXAMPLES = "suffolk bench build --tokenizer MODEL_FOLDER src/ --json build.json"

    endings: str = option(
        "",
        "extensions of the files to read from folders, such as .py,.md",
        flag="--extensions",
        metavar="LIST",
        blank=True,
    )

    def run(self) -> int:
        from suffolk.benchmarks.building import measure

        outcome = self.outcome("build")
        more = {"extensions": comma_list(self.endings), "sort_tokens": tuple(filter(None, self.sort_tokens))}
        settings = passed_on(self, BuildingOptions, workdir=self.folder, **more)
        return outcome.finish(settings, measure.measure_building(settings), measure)


@dataclass(frozen=True, kw_only=True)
class BenchMemory(WorkdirOptions, MemoryOptions):
    """Measure a datastore larger than memory: its cold start, latency and page faults."""

    EXAMPLES = "suffolk bench memory STORE --limits 1 0.5 0.2 --json memory.json"

    def run(self) -> int:
        from suffolk.benchmarks.memory import measure

        outcome, settings = self.outcome("memory"), passed_on(self, MemoryOptions, workdir=self.folder)
        return outcome.finish(settings, measure.measure_memory(settings), measure)


@dataclass(frozen=True, kw_only=True)
class BenchLive(ReportOptions, LiveBenchOptions):
    """Measure insertion, memory and drafts of a live index, compared to the suffix tree of arctic-inference."""

    EXAMPLES = "suffolk bench live STORE --against arctic-inference --json live.json"

    def run(self) -> int:
        from suffolk.benchmarks.live import measure

        outcome, settings = self.outcome("live"), passed_on(self, LiveBenchOptions)
        return outcome.finish(settings, measure.measure_live(settings), measure)


COMMANDS = {
    "retrieval": BenchRetrieval,
    "service": BenchService,
    "counts": BenchCounts,
    "build": BenchBuild,
    "memory": BenchMemory,
    "live": BenchLive,
}
