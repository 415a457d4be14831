"""Measurements of datastores: searched, served, built, larger than memory, and growing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from suffolk.cli.bench.report_options import ReportOptions, WorkdirOptions
from suffolk.cli.options.setting import REQUIRED, argument, option, passed_on
from suffolk.cli.options.values import comma_list
from suffolk.datastore.datastore import RESIDENCIES
from suffolk.datastore.settings import Count, Within


@dataclass(frozen=True, kw_only=True)
class BenchRetrieval(WorkdirOptions):
    """Measure the latency of lookups and drafts, in this process and over gRPC."""

    EXAMPLES = "suffolk bench retrieval STORE --against draftretriever --grpc --json retrieval.json"

    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    queries: Count = option(20_000, "contexts of each kind")
    called: Count = option(
        1000, "number of contexts of each kind that are also timed from Python, over gRPC and in draftretriever"
    )
    rounds: Count = option(3, "number of timed rounds, after one round to warm up")
    contexts: tuple[Path, ...] = option(
        (),
        "text or .jsonl files outside the corpus, for the unseen contexts (default: seen contexts with a token replaced)",
        several=True,
    )
    against: str | None = option(None, "also measure this package, on the same tokens", choices=("draftretriever",))
    grpc: bool = option(False, "also measure batches through 'suffolk serve'")
    batches: tuple[Count, ...] = option((1, 8, 32), "numbers of contexts in a call, with --grpc", several=True)
    tokens: Count | None = option(None, "use only the first N tokens (default: all)")
    checked: int = option(20, "number of answers of each kind to check by a scan of all tokens")
    max_nodes: Count = option(64, "nodes in a draft")

    def run(self) -> int:
        from suffolk.benchmarks.retrieval.measure import measure_retrieval
        from suffolk.benchmarks.retrieval.options import RetrievalBenchOptions
        from suffolk.benchmarks.retrieval.report import NOTES, PACKAGES, retrieval_panels, retrieval_parts

        outcome = self.outcome("retrieval")
        settings = passed_on(
            self,
            RetrievalBenchOptions,
            workdir=self.folder(outcome),
            unseen=self.contexts,
            against=self.against is not None,
        )
        results = measure_retrieval(settings)
        return outcome.finish(settings, results, NOTES, PACKAGES, retrieval_parts(results), retrieval_panels(results))


@dataclass(frozen=True, kw_only=True)
class BenchService(ReportOptions):
    """Latency and throughput of a draft service, processor time at both ends, and overload."""

    EXAMPLES = "suffolk bench service STORE --json service.json"

    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    calls: Count = option(500, "calls of each batch size, one after another")
    batches: tuple[Count, ...] = option((1, 32), "contexts in such a call", several=True)
    clients: tuple[Count, ...] = option((1, 4, 16, 64, 256), "clients that call at the same time", several=True)
    seconds: float = option(5.0, "duration of each load")
    deadline_ms: float = option(250.0, "deadline of a call under load", metavar="MS")
    max_nodes: Count = option(64, "nodes in a draft")

    def run(self) -> int:
        from suffolk.benchmarks.service.measure import (
            NOTES,
            PACKAGES,
            ServiceOptions,
            measure_service,
            service_panels,
            service_parts,
        )

        outcome = self.outcome("service")
        settings = passed_on(self, ServiceOptions)
        results = measure_service(settings)
        return outcome.finish(settings, results, NOTES, PACKAGES, service_parts(results), service_panels(results))


@dataclass(frozen=True, kw_only=True)
class BenchCounts(WorkdirOptions):
    """Compare counts of token sequences and bytes a token with infini-gram on the same tokens."""

    EXAMPLES = "suffolk bench counts STORE --lengths 1 2 4 8 --json counts.json"

    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    queries: Count = option(
        1000, "number of sequences of each length that occur; as many again have one token replaced"
    )
    lengths: tuple[Count, ...] = option((1, 2, 4, 8, 16), "tokens in a sequence", several=True)
    rounds: Count = option(3, "number of timed rounds, after one round to warm up")
    tokens: Count | None = option(None, "use only the first N tokens (default: all)")

    def run(self) -> int:
        from suffolk.benchmarks.counts.measure import (
            NOTES,
            PACKAGES,
            CountingOptions,
            counting_panels,
            counting_parts,
            measure_counting,
        )

        outcome = self.outcome("counts")
        settings = passed_on(self, CountingOptions, workdir=self.folder(outcome))
        results = measure_counting(settings)
        return outcome.finish(settings, results, NOTES, PACKAGES, counting_parts(results), counting_panels(results))


@dataclass(frozen=True, kw_only=True)
class BenchBuild(WorkdirOptions):
    """Measure the throughput and memory of building a datastore."""

    EXAMPLES = "suffolk bench build --tokenizer MODEL_FOLDER src/ --json build.json"

    corpora: tuple[str, ...] = argument(REQUIRED, "file, folder or pattern with text", metavar="CORPUS")
    tokenizer: str = option(REQUIRED, "Hugging Face folder, tokenizer.json or hub name", metavar="TOK")
    text_field: str = option("text", "field or column with the text", metavar="NAME")
    extensions: str = option(
        "", "extensions of the files to read from folders, such as .py,.md", metavar="LIST", blank=True
    )
    rounds: Count = option(1, "runs of each, in turn")
    threads: int = option(0, "processes and threads of the build and of its sort (default: one for each core)")
    sort_tokens: tuple[Annotated[int, Within(0)], ...] = option(
        (20_000_000, 80_000_000),
        "number of tokens to sort in the comparison with pydivsufsort, at most all; 0 skips the comparison",
        several=True,
    )
    sort_rounds: Count = option(3, "rounds of each sort")
    sort_repeats: Annotated[int, Within(0)] = option(
        10_000_000, "number of tokens of the inputs that consist of repeats; 0 skips these inputs"
    )

    def run(self) -> int:
        from suffolk.benchmarks.building.measure import (
            NOTES,
            PACKAGES,
            BuildingOptions,
            building_panels,
            building_parts,
            measure_building,
        )

        outcome = self.outcome("build")
        settings = passed_on(
            self,
            BuildingOptions,
            workdir=self.folder(outcome),
            extensions=comma_list(self.extensions),
            sort_tokens=tuple(each for each in self.sort_tokens if each),
        )
        results = measure_building(settings)
        return outcome.finish(settings, results, NOTES, PACKAGES, building_parts(results), building_panels(results))


@dataclass(frozen=True, kw_only=True)
class BenchMemory(WorkdirOptions):
    """Measure a datastore larger than memory: its cold start, latency and page faults."""

    EXAMPLES = "suffolk bench memory STORE --limits 1 0.5 0.2 --json memory.json"

    store: Path = argument(REQUIRED, "a datastore's folder, on the disk to be measured", metavar="STORE")
    limits: tuple[float, ...] = option(
        (1.0, 0.5, 0.2), "share of the store that memory may hold; 1 sets no limit", metavar="SHARE", several=True
    )
    residency: tuple[str, ...] = option(("mmap", "warm"), "policies to measure", choices=RESIDENCIES, several=True)
    queries: Count = option(1000, "contexts")
    rounds: Count = option(2, "rounds after the cold one")

    def run(self) -> int:
        from suffolk.benchmarks.memory.measure import (
            NOTES,
            PACKAGES,
            MemoryOptions,
            measure_memory,
            memory_panels,
            memory_parts,
        )

        outcome = self.outcome("memory")
        workdir = self.folder(outcome)
        settings = passed_on(self, MemoryOptions, workdir=workdir, residencies=self.residency)
        results = measure_memory(settings)
        return outcome.finish(settings, results, NOTES, PACKAGES, memory_parts(results), memory_panels(results))


@dataclass(frozen=True, kw_only=True)
class BenchLive(ReportOptions):
    """Measure insertion, memory and drafts of a live index, compared to the suffix tree of arctic-inference."""

    EXAMPLES = "suffolk bench live STORE --against arctic-inference --json live.json"

    store: Path = argument(REQUIRED, "a datastore, whose documents are appended", metavar="STORE")
    tokens: Count = option(8_000_000, "tokens to append")
    rival_tokens: int = option(2_000_000, "tokens to append to the other index, which takes more memory")
    document_tokens: Count = option(500, "tokens of a document; longer ones are cut")
    turns: Count = option(8, "parts of the insertion; the indexes take turns")
    rate: Count = option(100_000, "tokens appended a second while drafts are measured")
    queries: Count = option(4_000, "contexts")
    groups: Count = option(100_000, "groups of one document of one token each")
    max_match: Count = option(16, "longest match")
    min_match: Count = option(2, "shortest match")
    max_depth: Count = option(10, "depth of a draft")
    max_nodes: Count = option(64, "nodes of a draft")
    against: str | None = option(None, "also measure this package, on the same tokens", choices=("arctic-inference",))

    def run(self) -> int:
        from suffolk.benchmarks.live.measure import NOTES, PACKAGES, live_panels, live_parts, measure_live
        from suffolk.benchmarks.live.pieces import LiveBenchOptions

        outcome = self.outcome("live")
        settings = passed_on(self, LiveBenchOptions, against=self.against is not None)
        results = measure_live(settings)
        return outcome.finish(settings, results, NOTES, PACKAGES, live_parts(results), live_panels(results))


COMMANDS = {
    "retrieval": BenchRetrieval,
    "service": BenchService,
    "counts": BenchCounts,
    "build": BenchBuild,
    "memory": BenchMemory,
    "live": BenchLive,
}
