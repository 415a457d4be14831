"""Tables and plot of the retrieval measurement."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.plot import Panel
from suffolk.datastore.text_table import Table

QUANTILES = ("p50_us", "p90_us", "p99_us")
HEADERS = ("microseconds", "p50", "p90", "p99", "mean")
PACKAGES = ("numpy", "grpcio", "draftretriever", "matplotlib")
NOTES = (
    "all times are warm: a first round over all contexts is not counted. In the C++ core, a draft starts from the "
    "result of its lookup. From Python, a draft call includes the lookup, and returns its match length and count. "
    "lookup+draft calls both",
    "in the C++ core, the time of a context is the median of its rounds",
    "draftretriever is the published package of that name, not the suffix array of the REST repository. It uses only "
    "a context's last two tokens, searches at random and returns no counts",
)


def tables(results: dict[str, Any]) -> list[str | Table]:
    """The tables, with facts about them."""
    facts = results["datastore"]
    parts: list[str | Table] = [
        f"{facts['path']}: {facts['tokens']:,} tokens, {facts['bytes_per_token']:.2f} bytes a token"
    ]
    parts += ["", *_native_parts(results["native"])]
    for name, found in results["sets"].items():
        parts += ["", f"{name}: {found['how']}", *_latency_parts(found), *_quality_lines(found)]
    for name, ways in results["batches"].items():
        sizes = list(next(iter(ways.values())))
        rows = [[f"{way}, batch {size}", *_row(times[size])] for way, times in ways.items() for size in sizes]
        parts += ["", f"{name}, in batches", Table(HEADERS, rows)]
    return [*parts, *_memory_parts(results)]


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot latency of single calls, and of batches if measured."""
    panels = []
    for name, found in results["sets"].items():
        latency = found["latency"]
        series = {each.removesuffix("_us"): [times[each] for times in latency.values()] for each in QUANTILES}
        labels = [label.replace(", ", ",\n") for label in latency]
        panels.append(Panel(f"{name} contexts", "microseconds a call", labels, series, logarithmic=True))
    for name, ways in results["batches"].items():
        sizes = list(next(iter(ways.values())))
        series = {way: [times[size].get("p50_us") for size in sizes] for way, times in ways.items()}
        panels.append(Panel(f"{name}, batches, p50", "microseconds a call", sizes, series, logarithmic=True))
    return panels


def _native_parts(native: dict[str, Any]) -> list[str | Table]:
    rows = [
        [f"{name}: {call}", *_row(times)]
        for name, calls in native.items()
        if name != "one_token"
        for call, times in calls.items()
    ]
    one = native["one_token"]
    return [
        f"in the C++ core, one thread, {native['seen']['lookup']['calls']:,} contexts of each kind:",
        Table(HEADERS, rows),
        f"contexts of one token, all {one['contexts']:,}: slowest draft {one['slowest_draft_us']:.0f} us (token "
        f"{one['slowest_token']}, which occurs {one['its_count']:,} times), p50 {one['draft']['p50_us']:.1f} us",
    ]


def _latency_parts(found: dict[str, Any]) -> list[str | Table]:
    parts: list[str | Table] = [Table(HEADERS, [[name, *_row(times)] for name, times in found["latency"].items()])]
    if "alternating" in found:
        rows = [[name, *_row(times)] for name, times in found["alternating"].items()]
        parts += ["each query goes to all methods in turn, so that no method finds its data in the processor's caches:"]
        parts += [Table(HEADERS, rows)]
        for name, ratios in found["times_faster"].items():
            ways = "; ".join(
                f"{way.replace('_', ' ')} {each['p50']:.1f} at p50, {each['p99']:.1f} at p99"
                for way, each in ratios.items()
            )
            parts.append(f"speed-up, {name}: {ways}")
    return parts


def _quality_lines(found: dict[str, Any]) -> list[str]:
    drafts, checked = found["drafts"], found["checked_by_scan"]
    lines = [
        f"match length {drafts['mean_match_length']:.2f}, {_trees(drafts)}",
        f"exact: the answers for {checked['contexts']} contexts, {checked['nodes']:,} nodes, equal a scan of the whole corpus",
    ]
    if rival := drafts.get("draftretriever"):
        differing = rival["answers_differing_when_asked_again"]
        absent = rival["nodes_never_in_corpus_after_those_tokens"]
        lines.append(
            f"draftretriever: {_trees(rival)}; {differing:.0%} of its answers differ when a query is repeated; "
            f"{absent:.0%} of its nodes never follow the context's last two tokens in the corpus; it returns no counts"
        )
    return lines


def _trees(drafts: dict[str, Any]) -> str:
    return (
        f"found {drafts['found']:.1%}, {drafts['mean_nodes']:.1f} nodes, "
        f"{drafts['mean_accepted']:.2f} tokens of the true continuation are in the tree"
    )


def _memory_parts(results: dict[str, Any]) -> list[str | Table]:
    rows = [
        [f"{name}, {when}", size["anonymous"] / 1e6, size["file"] / 1e6]
        for name, sizes in results["memory_bytes"].items()
        for when, size in sizes.items()
    ]
    parts: list[str | Table] = ["", Table(("MB in memory", "own", "mapped files"), rows)]
    if built := results["draftretriever_index"]:
        parts.append(f"draftretriever's memory is measured after {results['draftretriever_searches']:,} searches")
        parts.append(
            f"draftretriever's index: {built['index_bytes'] / 1e6:.1f} MB, built in {built['seconds']:.1f} s with "
            f"{built['peak_memory_bytes'] / 1e6:,.0f} MB at most" + (" (by an earlier run)" if built["reused"] else "")
        )
    return parts


def _row(times: dict[str, float]) -> list[float | None]:
    return [times.get(name) for name in (*QUANTILES, "mean_us")]
