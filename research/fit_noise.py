"""Fits the constants of csrc/drafting/noise_reweighting.cc from recorded answers.

They describe how known noise changes the probability of retrieved tokens.

Prompt lookup and a datastore draft along sampled answers in one tree. The evidence is each node whose parent is on the
answer: its prior probability, its noise, and whether the answer contains it. Each temperature is also tested with a fit
to the other temperatures. Record answers to tuning prompts (research.tuning_prompts, research.record_answers).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from research.command import add_evidence, command_parser, run_command
from research.fit_priors import SHIPPED
from research.logistic_fit import Floats, fit_logistic, log_loss, probabilities
from research.prior_evidence import Evidence, gather, join
from suffolk.benchmarks.decode.options import LIMITS
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.drafters.calibration.calibrator import Prior
from suffolk.serving.decoding.drafters.calibration.rescale import knows_noise
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.replay.read import read_recordings

RIDGE = 1.0
LEAST, WARMEST, SUREST = 1e-6, 1.0, 4.5
"""Least probability, and the bounds of temperature and log-odds. Same values as in the C++ file."""
Table = tuple[Floats, npt.NDArray[np.bool_]]
"""Features of nodes, and whether the answers contain them."""


def noise_features(evidence: Evidence, prior: Prior, temperature: float) -> Floats:
    """Return float64[n, 4]: 1, the log-odds of ``prior``, centred noise times temperature, and their product."""
    chances = np.clip(probabilities(evidence.log_odds(prior)), LEAST, 1 - LEAST)
    odds, moved = np.log(chances / (1 - chances)), min(temperature, WARMEST) * (evidence.noise - np.euler_gamma)
    return np.stack([np.ones(len(odds)), odds, moved, moved * np.minimum(odds, SUREST)], axis=1)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    recordings = [
        each for each in read_recordings(args.recording) if len(each.generated) > 1 and knows_noise(each.settings)
    ]
    if not recordings:
        raise InvalidArgument(
            "no answer was sampled at a temperature above 0 with verification match; record answers at --temperature 1"
        )
    with open_datastore(args.datastore) as store:
        vocab_size = recordings[0].vocab_size
        sources: list[RetrievalSource] = [
            PromptLookupDrafter(vocab_size, LIMITS),
            DatastoreDrafter(store, vocab_size, LIMITS),
        ]
        evidence = gather(recordings, sources, args.nodes)
    tables = _by_temperature(evidence, [each.settings.temperature for each in recordings])
    rows = []
    for temperature, (columns, taken) in tables.items():
        others = [table for other, table in tables.items() if other != temperature] or [(columns, taken)]
        fitted = fit_logistic(*_join(others), RIDGE)
        alone = fit_logistic(columns, taken, RIDGE)
        losses = [log_loss(probabilities(z), taken) for z in (columns[:, 1], columns @ fitted, columns @ alone)]
        rows.append([f"{temperature:g}", f"{len(taken):,}", *(f"{loss:.5f}" for loss in losses), _numbers(alone)])
    headers = [
        "temperature",
        "nodes",
        "loss without noise",
        "fitted to the other temperatures",
        "with its own",
        "weights",
    ]
    print(format_table(headers, rows))
    whole = fit_logistic(*_join(tables.values()), RIDGE)
    print(f"kConstant, kOdds, kNoise, kNoiseOdds = {_numbers(whole)} of {len(recordings)} answers; loss: nats a node")
    return 0


def _by_temperature(evidence: dict[str, list[Evidence]], temperatures: Sequence[float]) -> dict[float, Table]:
    """Group ``evidence`` of all sources by the temperature of the answers."""
    found: dict[float, list[Table]] = {}
    for name, parts in evidence.items():
        for temperature in sorted(set(temperatures)):
            own = join([part for part, each in zip(parts, temperatures, strict=True) if each == temperature])
            found.setdefault(temperature, []).append((noise_features(own, SHIPPED[name], temperature), own.taken))
    return {temperature: _join(parts) for temperature, parts in found.items()}


def _join(tables: Iterable[Table]) -> Table:
    parts = list(tables)
    return np.concatenate([columns for columns, _ in parts]), np.concatenate([taken for _, taken in parts])


def _numbers(weights: Floats) -> str:
    return ", ".join(f"{weight:.3f}" for weight in weights)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("fit_noise", __doc__, "--recording tuning.jsonl --datastore STORE")
    add_evidence(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
