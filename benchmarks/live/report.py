"""Table and plot of the measurement of live indexes."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.live.indexes import SUFFOLK
from suffolk.benchmarks.plot import Panel
from suffolk.datastore.text_table import Table

PACKAGES = ("numpy", "arctic-inference", "matplotlib")
INSERTION = ("insertion", "tokens", "tokens/s", "tokens a CPU second", "bytes a token", "resident", "at the peak")
BYTES = ("bytes", "resident_bytes", "peak_bytes")
DRAFTS = ("drafts, microseconds", "p50", "p99", "nodes")
NOTES = (
    "tokens/s: documents appended one by one from one thread, merges in the background included; the indexes take turns",
    "bytes a token: by the index's own count; resident: growth of the process's memory; at the peak: during merges",
    "arctic-inference: its suffix tree at depth 24, with trees of up to max_nodes tokens and no least probability",
    "in C++: a lookup and a draft without the call from Python; contexts are from documents that are not appended",
    "segments: the same documents in so many, each of an index of its own, searched as one; falling: half of what is left in each",
    "overhead of a document: all but its one token and that token's position",
)


def live_parts(results: dict[str, Any]) -> list[str | Table]:
    """The tables, with facts about them."""
    insertion = [
        (
            name,
            each["tokens"],
            each["tokens"] / each["seconds"],
            each["tokens"] / each["cpu_seconds"],
            *(results["memory"][name][field] / results["memory"][name]["tokens"] for field in BYTES),
        )
        for name, each in results["insertion"].items()
    ]
    drafts = [
        *(
            (f"{name}, from Python", each["p50_us"], each["p99_us"], each["nodes"])
            for name, each in results["drafts"].items()
        ),
        *(
            (f"{SUFFOLK}, in C++, {name}", each["p50_us"], each["p99_us"], None)
            for name, each in results["core"].items()
        ),
        *(
            (f"{SUFFOLK}, from Python, segments: {shape}", each["p50_us"], each["p99_us"], each["nodes"])
            for shape, each in results["segments"].items()
        ),
    ]
    index, groups = results["index"], results["groups"]
    return [
        f"{results['documents']:,} documents, {results['tokens']:,} tokens, vocabulary of {results['vocab_size']:,}",
        Table(INSERTION, insertion),
        f"{index['segments']} segments; each token was merged {index['merged_tokens'] / results['tokens']:.1f} times",
        Table(DRAFTS, drafts),
        f"appended meanwhile: {results['core']['while appending']['tokens_per_second']:,.0f} tokens/s",
        f"{groups['documents']:,} groups of one token: {groups['overhead_bytes']:.1f} bytes of overhead a document; "
        f"a group's draft takes {groups['p50_us']:.1f} us (p99 {groups['p99_us']:.1f}) from Python",
    ]


def live_panels(results: dict[str, Any]) -> list[Panel]:
    """Plot insertion, memory and latency."""
    inserted, drafts = results["insertion"], results["drafts"]
    names = list(inserted)
    rates = [each["tokens"] / each["seconds"] for each in inserted.values()]
    sizes = [each["bytes"] / each["tokens"] for each in results["memory"].values()]
    return [
        Panel("insertion", "tokens a second", names, {"tokens/s": rates}, logarithmic=True),
        Panel("memory", "bytes a token", names, {"bytes": sizes}, logarithmic=True),
        Panel(
            "drafts from Python",
            "microseconds",
            names,
            {name: [drafts[each][f"{name}_us"] for each in names] for name in ("p50", "p99")},
            logarithmic=True,
        ),
    ]
