"""Settings of the comparison of one tree with single sources and switching rules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.benchmarks.hybrid.compared_drafters import compared_names, useless_names
from suffolk.benchmarks.hybrid.counted_time import require_counted
from suffolk.benchmarks.hybrid.hindsight_drafter import HINDSIGHT
from suffolk.benchmarks.report import plain
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import MAX_NODES
from suffolk.serving.transport.limits import check_range

PARTS = ("nodes", "planned", "service")


@dataclass(frozen=True, slots=True)
class HybridOptions:
    """Settings of ``suffolk bench hybrid``. Checked when made.

    Attributes:
        decoding: model, prompts, sources and lengths; its drafters are ignored.
        output: folder of recordings, rows, report and plot.
        temperatures: sampling temperatures; 0 for greedy.
        nodes: sizes of the largest tree, for M at equal numbers of nodes.
        parts: nodes (M at equal numbers of nodes), planned (speed-up along recorded answers, by the costs of passes), service
            (tokens/s by the clock).
        drafters: names of ``compared_drafters``; empty for all that can run.
        useless: whether to compare one tree with itself plus useless sources instead.
        unrelated: with ``useless``: a datastore unlike the prompts; None for none.
        excluded: names of prompts to leave out.
        counted: whether, in the part planned, passes of draft models take their stored cost.
    """

    decoding: DecodingOptions
    output: Path
    temperatures: tuple[float, ...] = (0.0,)
    nodes: tuple[int, ...] = (8, 16, 64)
    parts: tuple[str, ...] = PARTS
    drafters: tuple[str, ...] = ()
    useless: bool = False
    unrelated: str | None = None
    excluded: frozenset[str] = frozenset()
    counted: bool = False

    def __post_init__(self) -> None:
        for nodes in self.nodes:
            check_range("--nodes", nodes, 1, MAX_NODES)
        for name in ("temperatures", "nodes", "parts", "drafters"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise InvalidArgument(f"--{name}: {', '.join(map(str, values))}: one is named twice")
        if not self.temperatures or not self.parts or not set(self.parts) <= set(PARTS):
            raise InvalidArgument(f"--parts and --temperature need one value or more; parts are {', '.join(PARTS)}")
        if self.unrelated is not None and not self.useless:
            raise InvalidArgument("--unrelated is for --useless; leave it out, or add --useless")
        if self.parts != ("nodes",) and any(name.startswith(HINDSIGHT) for name in self.drafters):
            raise InvalidArgument(f"--drafters {HINDSIGHT}: NETWORK knows the answers; give --parts nodes with it")
        if self.counted and "planned" not in self.parts:
            raise InvalidArgument("--counted is for the part planned; leave it out, or name that among --parts")
        if self.counted:
            require_counted(list(self.decoding.models.parts()))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the drafters that run."""
        if self.drafters:
            return self.drafters
        if self.useless:
            return tuple(useless_names(self.unrelated is not None))
        return tuple(compared_names(list(self.decoding.models.parts()), bool(self.decoding.datastores)))

    def settings(self) -> dict[str, Any]:
        """The settings that rows depend on, as plain values. Two runs with equal settings can be joined."""
        found = plain(self) | {"drafters": list(self.names), "excluded": sorted(self.excluded)}
        return {
            name: value for name, value in found.items() if name not in ("output", "parts", "temperatures", "nodes")
        }
