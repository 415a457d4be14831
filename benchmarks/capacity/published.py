"""Costs measured on a named machine, for plans without a profile of one's own."""

from __future__ import annotations

from suffolk.benchmarks.capacity.service_costs import ServiceCosts

PUBLISHED = ServiceCosts(
    machine="draft",
    datastore="117 M tokens of Python in 2 segments",
    max_nodes=64,
    server_call_s=0.0004,
    server_context_s=5e-6,
    client_call_s=0.00035,
    client_context_s=1.0e-5,
    segment_s=24e-6,
    segment_tokens=1 << 20,
    doubling_s=3.3e-6,
    search_spread=2.0,
    wait_s=0.0003,
    request_call_bytes=12,
    request_context_bytes=68,
    reply_context_bytes=600,
    cold_reads=45,
    read_s=58e-6,
    sorted_tokens=11e6,
    text_bytes=7.5e6,
    token_bytes=3.5,
    table_bytes=80,
    process_bytes=100e6,
)
