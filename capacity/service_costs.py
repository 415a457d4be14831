"""Costs of the draft service on one core of a machine, and their file. ``suffolk profile --datastore`` measures them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from suffolk.datastore.checks import ABOVE_0
from suffolk.datastore.errors import Unsupported
from suffolk.datastore.files import write_json
from suffolk.datastore.settings import Checked, Within, from_json, read_object

FORMAT = 1
ADVICE = "'suffolk profile --datastore STORE' makes such a file"
_LEAST_SHARE = 0.25

Cost = Annotated[float, Within(0)]
Amount = Annotated[float, Within(ABOVE_0)]


@dataclass(frozen=True, slots=True)
class ServiceCosts(Checked):
    """Costs of calls of ``DraftService.Draft``. Seconds are processor seconds of one core unless stated. Checked when made.

    Attributes:
        machine: processor, cores and commit.
        datastore: tokens and segments of the measured datastore.
        max_nodes: the most nodes of a draft.
        server_call_s, client_call_s: cost of a call, without its contexts.
        server_context_s, client_context_s: cost of a context of a call, without its search.
        segment_s: search and draft of a context in a segment of ``segment_tokens`` tokens whose pages are in memory.
        doubling_s: seconds that each doubling of the segment's tokens adds.
        search_spread: standard deviation of the search seconds of a context, as a share of their mean.
        wait_s: wall seconds of a call beyond the processor time of both ends, with both ends on one machine.
        request_call_bytes, request_context_bytes, reply_context_bytes: sizes of messages.
        cold_reads: disk reads of a context in a segment, if only the segment's directory is in memory.
        read_s: wall seconds of a random read of 4 KiB.
        sorted_tokens: tokens that a core sorts in a second.
        text_bytes: bytes of text that a core reads and tokenizes in a second.
        token_bytes: bytes of text of a token.
        table_bytes: bytes of a document in the document table.
        process_bytes: memory of a server without the datastore's files.
    """

    machine: str
    datastore: str
    max_nodes: Annotated[int, Within(1)]
    server_call_s: Amount
    server_context_s: Cost
    client_call_s: Amount
    client_context_s: Cost
    segment_s: Amount
    segment_tokens: Annotated[int, Within(1)]
    doubling_s: Cost
    search_spread: Cost
    wait_s: Cost
    request_call_bytes: Cost
    request_context_bytes: Amount
    reply_context_bytes: Amount
    cold_reads: Cost
    read_s: Cost
    sorted_tokens: Amount
    text_bytes: Amount
    token_bytes: Amount
    table_bytes: Cost
    process_bytes: Cost

    def search_s(self, segment_tokens: float) -> float:
        """Seconds of a context in a segment of this size. The result is at least a quarter of ``segment_s``."""
        grown = self.segment_s + self.doubling_s * math.log2(max(segment_tokens, 1) / self.segment_tokens)
        return max(grown, _LEAST_SHARE * self.segment_s)


def write_costs(costs: ServiceCosts, path: Path) -> None:
    """Write the file that ``read_costs`` reads. Raises the errors of ``write_json``."""
    write_json(path, {"format": FORMAT, **asdict(costs)})


def read_costs(path: Path) -> ServiceCosts:
    """Read a file of ``suffolk profile --datastore``.

    Raises:
        NotFound, Corruption: there is no file, or it is damaged.
        Unsupported: it is of another version.
        InvalidArgument: a value is missing, unknown or out of its range.
    """
    found = read_object(path, str(path), ADVICE)
    if found.get("format") != FORMAT:
        raise Unsupported(f"{path}: its format is {found.get('format')!r}, not {FORMAT}; {ADVICE}")
    return from_json(ServiceCosts, {name: value for name, value in found.items() if name != "format"}, str(path))


def costs_lines(costs: ServiceCosts) -> list[str]:
    """The costs as text."""

    def us(seconds: float) -> str:
        return f"{1e6 * seconds:.3g} us"

    return [
        f"machine    {costs.machine}",
        f"datastore  {costs.datastore}; drafts of {costs.max_nodes} nodes",
        f"server     {us(costs.server_call_s)} a call, {us(costs.server_context_s)} a context without its search; "
        f"{costs.process_bytes / 1e6:.0f} MB of memory",
        f"client     {us(costs.client_call_s)} a call, {us(costs.client_context_s)} a context",
        f"search     {us(costs.segment_s)} a context in a segment of {costs.segment_tokens:,} tokens, {us(costs.doubling_s)} more "
        f"for each doubling; spread {costs.search_spread:.2f}",
        f"messages   {costs.request_context_bytes:.0f} bytes a context sent, {costs.reply_context_bytes:.0f} received",
        f"disk       {costs.cold_reads:.0f} reads of {us(costs.read_s)} a context and segment, if nothing is in memory",
        f"build      {costs.text_bytes / 1e6:.1f} MB/s of text tokenized and {costs.sorted_tokens / 1e6:.1f} M tokens/s sorted, "
        "each on one core",
    ]


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
