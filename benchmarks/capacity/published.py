"""Costs measured on a named machine, for plans without a profile of one's own."""

from __future__ import annotations

from suffolk.benchmarks.capacity.service_costs import ServiceCosts

PUBLISHED = ServiceCosts(
    machine="two quiet cores of an Intel Xeon, commit 02437910",
    datastore="117 M tokens of Python in 2 segments",
    max_nodes=64,
    server_call_s=0.0005228,
    server_context_s=2.662e-05,
    client_call_s=0.0004526,
    client_context_s=1.219e-05,
    segment_s=2.08e-05,
    segment_tokens=1048576,
    doubling_s=2.797e-06,
    search_spread=1.907,
    wait_s=0.0,
    request_call_bytes=13.94,
    request_context_bytes=68.06,
    reply_context_bytes=574.4,
    cold_reads=117.3,
    read_s=9.257e-05,
    sorted_tokens=17210000.0,
    text_bytes=21580000.0,
    token_bytes=3.873,
    table_bytes=6.481,
    process_bytes=49760000.0,
)
