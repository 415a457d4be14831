"""Fits the prior of drafts from predicted texts to edits of source files.

The old file is the prediction, the new file the output.

The prediction drafter drafts along each new file. Each half of the edits is tested with a fit to the other half. The
printed prior is fitted to all edits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from research.command import add_seed, command_parser, run_command
from research.edits import read_edits
from research.fit_priors import RIDGE, fit_source
from research.prior_evidence import gather
from suffolk.benchmarks.report import commit
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.files import write_json
from suffolk.datastore.text_table import format_table
from suffolk.datastore.tokenizer import load_tokenizer
from suffolk.serving.decoding.drafters.retrieval.prediction import PRIOR, PredictionDrafter
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.recording import Recording


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    edits = read_edits(args.repository, args.suffix, args.edits, args.seed)
    if len(edits) < 2:
        raise InvalidArgument(f"--repository {args.repository}: {len(edits)} edits found; name one with more commits")
    tokenizer = load_tokenizer(args.tokenizer)
    predictions = [_ids(tokenizer, each.before) for each in edits]
    texts = [_ids(tokenizer, each.after) for each in edits]
    recordings = [
        Recording(text[:1], text, SamplingSettings(max_new_tokens=len(text)), tokenizer.get_vocab_size())
        for text in texts
    ]
    (parts,) = gather(recordings, [PredictionDrafter()], args.nodes, predictions).values()
    found = fit_source(PRIOR, parts, ["edits"] * len(edits), [place % 2 for place in range(len(edits))], RIDGE)
    numbers = ", ".join(f"{term}={value:.3g}" for term, value in found["prior"].items())
    print(f"Prior({numbers})  # of {found['nodes']:,} nodes of {len(edits)} edits")
    rows = [[when, *found["all"][when].values()] for when in ("before", "after")]
    print(format_table(["prior", "calibration error", "of likely nodes", "loss"], rows))
    if args.json:
        write_json(args.json, {"command": sys.argv, "commit": commit(), "edits": len(edits), "fit": found})
    return 0


def _ids(tokenizer: Tokenizer, text: str) -> Ids:
    return np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int32)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("fit_prediction", __doc__, "--repository . --tokenizer MODEL")
    add = parser.add_argument
    add("--repository", type=Path, default=Path(), metavar="FOLDER", help="git repository (default: this one)")
    add("--suffix", default=".py", help="suffix of the names of edited files (default: %(default)s)")
    add("--edits", type=int, default=200, metavar="N", help="most edits, chosen at random (default: %(default)s)")
    add("--tokenizer", required=True, metavar="MODEL", help="model folder or hub name")
    add("--nodes", type=int, default=64, metavar="N", help="nodes of the largest draft (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write all numbers there")
    add_seed(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
