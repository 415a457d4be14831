"""Show what drafts have been worth: how often what a source expected of its drafts came true.

FILE is what --calibration of 'suffolk generate', 'worker' or 'replay' wrote. For each source the
reliability diagram has a line for each tenth of 0..1: what was predicted there in the mean, how often it came true, and how many
predictions there were, old ones counting less. Every prediction was made before its outcome was known. The error is the mean
distance between the two. "sampled": of requests with a temperature above 0; "in hybrid": of a network beside other sources;
"in hierarchy": of text searched for a level of models."""

from __future__ import annotations

import argparse
import json
from typing import Any

from suffolk.cli.filled import filled_path
from suffolk.cli.printable import printable
from suffolk.serving.drafters.calibration.calibration import Learned
from suffolk.serving.drafters.calibration.calibration_file import read_calibration
from suffolk.serving.drafters.calibration.reliability import Reliability

EPILOG = """examples:
  suffolk worker --model MODEL_FOLDER --datastore code/ --calibration code.json      learns, and keeps it
  suffolk calibration code.json
  suffolk calibration code.json --json"""
LIKELY = 0.1
"""Most nodes of a draft are unlikely, and easily told so; those above this chance are what trees are made of."""
_WIDTH = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``suffolk calibration``."""
    parser.epilog = EPILOG
    parser.add_argument("file", type=filled_path, metavar="FILE", help="what --calibration wrote")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Read and print; returns the exit code."""
    found = [_facts(each) for each in read_calibration(args.file).learned()]
    found = [each for each in found if each["predictions"]]
    print(json.dumps(found) if args.json else "\n".join(_lines(found)))
    return 0


def _facts(learned: Learned) -> dict[str, Any]:
    reliability = Reliability()
    reliability.restore(learned.reliability)
    return {
        "source": learned.source,
        "predictions": reliability.weight,
        "error": reliability.error(),
        "error_of_likely": reliability.error(LIKELY),
        "diagram": [
            {"predicted": bar.predicted, "measured": bar.measured, "weight": bar.weight} for bar in reliability.bars()
        ],
    }


def _lines(found: list[dict[str, Any]]) -> list[str]:
    if not found:
        return ["nothing was learned yet"]
    lines: list[str] = []
    for each in found:
        lines += [
            f"{printable(each['source'])}: error {each['error']:.3f} over {each['predictions']:.0f} predictions, "
            f"{each['error_of_likely']:.3f} over those of {LIKELY} and more",
            "  predicted  measured   weight  (bar: measured)",
        ]
        lines += [
            f"  {bar['predicted']:9.3f} {bar['measured']:9.3f} {bar['weight']:8.0f}  {'#' * round(_WIDTH * bar['measured'])}"
            for bar in each["diagram"]
        ]
        lines.append("")
    return lines[:-1]
