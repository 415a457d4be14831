"""What it takes to build a datastore."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.benchmarks.capacity.amounts import amount, size
from suffolk.benchmarks.capacity.index_size import build_bytes
from suffolk.benchmarks.capacity.need import Need
from suffolk.benchmarks.capacity.service_costs import ServiceCosts


@dataclass(frozen=True, slots=True)
class Building:
    """Text, core hours to read and tokenize it and to sort its tokens, memory of a segment, and hours on the nodes of the plan."""

    text_bytes: float
    tokenize_core_hours: float
    sort_core_hours: float
    memory_bytes: float
    hours: float

    def lines(self) -> list[str]:
        """One line of text."""
        return [
            f"build     {size(self.text_bytes)} of text: {amount(self.tokenize_core_hours)} core hours to tokenize and "
            f"{amount(self.sort_core_hours)} to sort; {size(self.memory_bytes)} of memory for a segment; "
            f"{amount(self.hours)} hours on these nodes"
        ]


def building_of(need: Need, costs: ServiceCosts, nodes: int) -> Building:
    """The build on so many nodes, all cores of which work all the time. Copying is not counted."""
    text = need.tokens * costs.token_bytes
    tokenize, sort = text / costs.text_bytes / 3600, need.tokens / costs.sorted_tokens / 3600
    memory = build_bytes(need.tokens_of_segment, need.vocab_size)
    return Building(text, tokenize, sort, memory, (tokenize + sort) / (nodes * need.node.cores))
