"""Show how well acceptance is predicted: a reliability diagram for each source.

'suffolk generate', 'worker' and 'replay' write FILE, if their setting calibration names it. The
diagram has a line for each tenth of 0..1: the mean predicted probability, the measured share of
accepted tokens, and the weight of these predictions. Old predictions weigh less. Every prediction was made
before its outcome was known. The error is the mean distance of prediction and measurement.
"sampled": requests with a temperature above 0; "in hybrid": a neural drafter beside other sources;
"in hierarchy": a source that drafts for a model of a hierarchy.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suffolk.cli.options import setting
from suffolk.datastore.files import printable
from suffolk.datastore.settings import REQUIRED, argument, option
from suffolk.serving.decoding.drafters.calibration.calibration import Learned
from suffolk.serving.decoding.drafters.calibration.calibration_file import read_calibration
from suffolk.serving.decoding.drafters.calibration.confidence import Reliability

EXAMPLES = """
suffolk worker --model MODEL_FOLDER --datastore code/ --calibration code.json      learns, and keeps it
suffolk calibration code.json
suffolk calibration code.json --json"""
LIKELY = 0.1
"""Least probability of a likely node. Unlikely nodes are easy to predict, and few of them are verified."""
_WIDTH = 40


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    file: Path = argument(REQUIRED, "a calibration file")
    json: bool = option(False, "print the result as JSON")


def run(options: Options) -> None:
    found = [_facts(each) for each in read_calibration(options.file).learned()]
    found = [each for each in found if each["predictions"]]
    print(json.dumps(found) if options.json else "\n".join(_lines(found)))


def _facts(learned: Learned) -> dict[str, Any]:
    reliability = Reliability()
    reliability.restore(learned.reliability)
    return {
        "source": learned.source,
        "predictions": reliability.weight,
        "error": reliability.error(),
        "error_of_likely": reliability.error(LIKELY),
        "diagram": [asdict(bar) for bar in reliability.bars()],
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
