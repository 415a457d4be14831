"""Settings of the comparison of one tree with single sources and switching rules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from research.one_tree.hindsight_drafter import HINDSIGHT
from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.benchmarks.report import plain
from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import MAX_NODES

PARTS = ("nodes", "planned", "service")


@dataclass(frozen=True, slots=True)
class HybridOptions:
    """Settings of the comparison. Checked when made.

    Attributes:
        decoding: settings of model, prompts, sources and lengths. Its ``drafters`` field is ignored.
        output: folder for recordings, rows, report and plot.
        temperatures: sampling temperatures; 0 for greedy.
        nodes: tree sizes for the part ``nodes``.
        parts: nodes (M at equal tree sizes), planned (speed-up along recorded answers, from pass costs), service
            (measured tokens/s).
        drafters: names from ``compared_drafters``; empty for all that can run.
        useless: whether to compare one tree with and without useless sources instead.
        unrelated: a datastore that is unlike the prompts, for ``useless``; may be None.
        excluded: names of prompts to leave out.
        counted: whether passes of draft models take their stored cost in the part ``planned``.
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
            raise InvalidArgument("--unrelated needs --useless; leave it out, or add --useless")
        if self.parts != ("nodes",) and any(name.startswith(HINDSIGHT) for name in self.drafters):
            raise InvalidArgument(
                f"--drafters '{HINDSIGHT}: NETWORK' uses the recorded answers; it runs only with --parts nodes"
            )
        if self.counted and "planned" not in self.parts:
            raise InvalidArgument("--counted needs the part planned; leave it out, or add planned to --parts")
        if self.counted:
            from research.one_tree.counted_time import require_counted

            require_counted(list(self.decoding.models.parts()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the drafters that run."""
        from research.one_tree.compared_drafters import compared_names, useless_names

        if self.drafters:
            return self.drafters
        if self.useless:
            return tuple(useless_names(self.unrelated is not None))
        return tuple(compared_names(list(self.decoding.models.parts()), bool(self.decoding.datastores)))

    def settings(self) -> dict[str, Any]:
        """The settings that rows depend on, as plain values. Rows of runs with equal settings can be joined."""
        found = plain(self) | {"drafters": list(self.names), "excluded": sorted(self.excluded)}
        return {
            name: value for name, value in found.items() if name not in ("output", "parts", "temperatures", "nodes")
        }
