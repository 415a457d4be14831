"""Estimates how close a target pass comes to the memory-bandwidth limit: a pass reads every weight once."""

from __future__ import annotations

import time
from typing import Any

import torch

from suffolk.serving.decoding.engine.model.target import Target

_ITEMS = 1 << 26
_ROUNDS = 5


def measure_bandwidth(target: Target, pass_seconds: float) -> dict[str, Any]:
    """Return the bytes that a pass reads, the device's bytes per second, and the share of this rate that it reaches.

    ``pass_seconds``: the measured time of a pass. A pass reads few rows of the embedding
    table, so the table counts only if the output layer shares it.
    """
    needed = _weight_bytes(target)
    rate = _read_rate(target.device)
    return {
        "weight_bytes_a_pass": needed,
        "device_bytes_a_second": rate,
        "plain_pass_seconds": pass_seconds,
        "share_of_limit": needed / pass_seconds / rate,
    }


def _weight_bytes(target: Target) -> int:
    embeddings = target.model.get_input_embeddings().weight
    head = target.model.get_output_embeddings()
    tied = head is not None and head.weight.data_ptr() == embeddings.data_ptr()
    everything = sum(parameter.nbytes for parameter in target.model.parameters())
    return int(everything if tied else everything - embeddings.nbytes)


def _read_rate(device: torch.device) -> float:
    """Measure bytes per second of summing an array far larger than any cache; the best of a few rounds."""
    numbers = torch.ones(_ITEMS, dtype=torch.float32, device=device)
    best = float("inf")
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        numbers.sum().item()
        best = min(best, time.perf_counter() - begin)
    return numbers.nbytes / best
