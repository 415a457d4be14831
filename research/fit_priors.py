"""Fits the five numbers of ``Prior`` from recorded answers: the initial calibration of text sources.

Prompt lookup and a datastore draft along the answers in one tree. The evidence is each node whose parent is on the
answer: its features, and whether the answer contains it. Each half of the answers is tested with a fit to the other
half. The printed numbers are fitted to all answers. Record answers to tuning prompts (research.tuning_prompts,
research.record_answers). Never use the prompts of a benchmark for a fit.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from research.command import add_evidence, command_parser, run_command
from research.logistic_fit import Floats, fit_logistic, log_loss, probabilities
from research.prior_evidence import TERMS, Evidence, gather, join
from suffolk.benchmarks.decode.options import LIMITS
from suffolk.benchmarks.report import commit, describe_machine
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.files import write_json
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.drafters.calibration.calibrator import Prior
from suffolk.serving.decoding.drafters.calibration.confidence import Reliability
from suffolk.serving.decoding.drafters.retrieval.datastore import PRIOR as DATASTORE_PRIOR
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PRIOR as PROMPT_PRIOR
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.replay.read import read_recordings
from suffolk.serving.decoding.replay.recording import Recording

SHIPPED = {"prompt-lookup": PROMPT_PRIOR, "datastore": DATASTORE_PRIOR}
RIDGE = 1.0
LIKELY = 0.1
"""Least probability of nodes that enter trees. Most found nodes are below it, and easy to predict."""


def fit_prior(evidence: Evidence, ridge: float = RIDGE) -> Prior:
    """Return the prior with the largest likelihood of ``evidence``."""
    if not len(evidence.taken):
        raise InvalidArgument("the recordings hold no evidence: no drafts were found; give more answers")
    return Prior(*fit_logistic(evidence.features, evidence.taken, ridge).tolist())


def judge(chances: Floats, taken: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Return the calibration error of ``chances``, over all and over ``LIKELY`` nodes, and the loss in nats a node."""
    reliability = Reliability()
    reliability.add(chances, taken)
    errors = {"calibration_error": reliability.error(), "of_likely": reliability.error(LIKELY)}
    return errors | {"log_loss": log_loss(chances, taken)}


def fit_source(
    shipped: Prior, parts: Sequence[Evidence], groups: Sequence[str], halves: Sequence[int], ridge: float
) -> dict[str, Any]:
    """Compare the shipped and the fitted prior on answers outside of the fit, all together and by group.

    ``halves``: 0 or 1 for each answer.
    """
    divided = [join([part for part, own in zip(parts, halves, strict=True) if own == half]) for half in (0, 1)]
    priors = [fit_prior(half, ridge) for half in divided]
    everything = fit_prior(join(parts), ridge)
    found: dict[str, Any] = {"nodes": sum(len(half.taken) for half in divided)}
    answers = list(zip(parts, groups, halves, strict=True))
    for name in ("all", *dict.fromkeys(groups)):
        chosen = [
            join([part for part, group, own in answers if own == half and name in ("all", group)]) for half in (0, 1)
        ]
        tested = join(chosen)
        if len(tested.taken):
            fitted = np.concatenate([probabilities(chosen[half].log_odds(priors[1 - half])) for half in (0, 1)])
            found[name] = {
                "nodes": len(tested.taken),
                "before": judge(probabilities(tested.log_odds(shipped)), tested.taken),
                "after": judge(fitted, tested.taken),
            }
    return found | {"prior": {term: getattr(everything, term) for term in TERMS}}


def halves_of(recordings: Sequence[Recording]) -> list[int]:
    """Return 0 or 1 for each recording. All answers to one prompt get the same half."""
    prompts = {
        prompt: place for place, prompt in enumerate(dict.fromkeys(each.prompt.tobytes() for each in recordings))
    }
    return [prompts[each.prompt.tobytes()] % 2 for each in recordings]


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    if not 0 < args.ridge < math.inf:
        raise InvalidArgument(f"--ridge is {args.ridge}; it must be a number above 0")
    recordings = [each for each in read_recordings(args.recording) if len(each.generated) > 1]
    if len(recordings) < 2:
        raise InvalidArgument("fewer than two answers of two tokens or more; record more")
    with open_datastore(args.datastore) as store:
        vocab_size = recordings[0].vocab_size
        sources: list[RetrievalSource] = [
            PromptLookupDrafter(vocab_size, LIMITS),
            DatastoreDrafter(store, vocab_size, LIMITS),
        ]
        evidence = gather(recordings, sources, args.nodes)
    groups = [f"{each.group}, temperature {each.settings.temperature:g}" for each in recordings]
    halves = halves_of(recordings)
    results = {name: fit_source(SHIPPED[name], parts, groups, halves, args.ridge) for name, parts in evidence.items()}
    for name, found in results.items():
        numbers = ", ".join(f"{term}={value:.3g}" for term, value in found["prior"].items())
        print(f"{name}: Prior({numbers})  # of {found['nodes']:,} nodes of {len(recordings)} answers")
    headers = [
        "source, answers",
        "nodes",
        "error before",
        "after",
        f"of {LIKELY:g} and up",
        "after",
        "loss before",
        "after",
    ]
    print(format_table(headers, [row for name, found in results.items() for row in _rows(name, found)]))
    print(
        "error: calibration error; loss: nats a node; before: the shipped prior; after: fitted to the other half of the answers"
    )
    if args.json:
        facts = {"command": sys.argv, "commit": commit(), "machine": describe_machine(), "answers": len(recordings)}
        write_json(args.json, facts | {"sources": results})
    return 0


def _rows(name: str, found: dict[str, Any]) -> list[list[object]]:
    return [
        [
            f"{name}: {group}",
            each["nodes"],
            *(each[when][field] for field in each["before"] for when in ("before", "after")),
        ]
        for group, each in found.items()
        if group not in ("nodes", "prior")
    ]


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("fit_priors", __doc__, "--recording tuning.jsonl --datastore STORE")
    add_evidence(parser)
    add = parser.add_argument
    add(
        "--ridge",
        type=float,
        default=RIDGE,
        metavar="R",
        help="precision of the weights' prior at 0 (default: %(default)s)",
    )
    add("--json", type=Path, metavar="FILE", help="write all numbers there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
