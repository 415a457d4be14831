"""Costs measured on a named machine, for plans without a profile of one's own."""

from __future__ import annotations

from suffolk.benchmarks.capacity.service_costs import ServiceCosts

PUBLISHED = ServiceCosts(
    machine="two cores of an Intel Xeon, busy with other work, commit a16f903a",
    datastore="117 M tokens of Python in 2 segments",
    max_nodes=64,
    server_call_s=0.0004479,
    server_context_s=0.0,
    client_call_s=0.000576,
    client_context_s=1.045e-05,
    segment_s=2.482e-05,
    segment_tokens=1048576,
    doubling_s=3.539e-06,
    search_spread=1.999,
    wait_s=0.0,
    request_call_bytes=13.94,
    request_context_bytes=68.06,
    reply_context_bytes=574.4,
    cold_reads=111.8,
    read_s=5.232e-05,
    sorted_tokens=15730000.0,
    text_bytes=19720000.0,
    token_bytes=3.873,
    table_bytes=6.481,
    process_bytes=49240000.0,
)
