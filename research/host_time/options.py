"""Settings of the measurement of the host's time in a step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from suffolk.datastore.settings import Checked, Within, option

HOST_DRAFTERS = ("plain", "prompt-lookup", "datastore", "hybrid")


@dataclass(frozen=True, kw_only=True)
class HostOptions(Checked):
    """``seed``: of the choice of texts."""

    requests: tuple[Annotated[int, Within(1, 1024)], ...] = option((1, 8, 64), "requests at once", several=True)
    drafters: tuple[Annotated[str, HOST_DRAFTERS], ...] = option(
        ("plain", "hybrid"), "plain decoding, or drafters to measure", several=True
    )
    tokens: Annotated[int, Within(8, 4096)] = option(128, "tokens of each answer")
    prompt: Annotated[int, Within(1, 4096)] = option(256, "tokens of each prompt")
    temperature: float = option(0.0, "sampling temperature; 0: greedy")
    costs: Path | None = option(
        None,
        "times of passes that the policy is told, stored by 'suffolk profile' (default: 70 ms a pass)",
        metavar="FILE",
    )
    rounds: Annotated[int, Within(1, 1000)] = option(3, "batches of requests")
    seed: int = 0
