"""Measures acceptance at one node, with and without shared noise, by temperature and number of children."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from research.command import command_parser, run_command
from research.coupling_pairs import CouplingOptions, logits_by_context
from suffolk.benchmarks.plot import Panel, require_plots, write_plot
from suffolk.benchmarks.report import make_report, plain, write_report
from suffolk.cli.output_file import plot_beside
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.sampling.seeded_noise import SeededNoise

TEMPERATURES = (0.3, 0.6, 1.0, 1.4)
CHILDREN = (1, 2, 4, 8)
EXAMPLES = (
    "--json coupling.json",
    "--model MODEL_FOLDER --prompts prompts/ --contexts 200 --draws 8",
    "--model LARGE --drafter SMALL --prompts prompts/ --contexts 200 --draws 8",
)
PACKAGES = ("numpy", "torch", "transformers", "matplotlib")
NOTES = (
    "acceptance: probability that one of a node's k children is the token that the target samples there; mean over "
    "contexts. top-k: children are the drafter's k likeliest tokens. coupled: children are the k best tokens by the "
    "drafter's log probability plus the target's seeded noise",
    "by: coupled minus top-k, with the half-width of its 95 % confidence interval over contexts and noise; 1 - TV: "
    "acceptance of speculative sampling with a single sampled token",
    "both models use the same temperature; the result is for one node and does not include how often later nodes are "
    "reached",
)


def measure_coupling(options: CouplingOptions) -> dict[str, Any]:
    """Compare both rules for a node's children with every drafter; return the results by name.

    Raises:
        NotFound, Unsupported: a model or the prompts are missing or do not fit together.
    """
    found: dict[str, dict[float, list[npt.NDArray[np.float64]]]] = {}
    noise: SeededNoise | None = None
    for number, (target, drafters) in enumerate(logits_by_context(options)):
        noise = noise or SeededNoise(options.seed, len(target), torch.device("cpu"))
        rows = noise.rows(number * options.draws, options.draws)
        for name, drafter in drafters.items():
            for temperature in TEMPERATURES:
                outcome = compare(target / temperature, drafter / temperature, rows)
                found.setdefault(name, {}).setdefault(temperature, []).append(outcome)
    return {
        "children": list(CHILDREN),
        "drafters": {
            name: {f"{temperature:g}": _summary(np.stack(each)) for temperature, each in by_temperature.items()}
            for name, by_temperature in found.items()
        },
    }


def compare(target: torch.Tensor, drafter: torch.Tensor, noise: torch.Tensor) -> npt.NDArray[np.float64]:
    """Return float64[1 + 2 * len(CHILDREN)]: 1 - TV, acceptance of top-k, and of top-k with the target's noise.

    ``target`` and ``drafter``: float64[vocab] tempered logits. ``noise``: float64[draws, vocab], standard Gumbel. The first two
    results are exact, the last is a mean over draws.
    """
    target_probs, draft_probs = target.softmax(-1), drafter.softmax(-1)
    top = target_probs[drafter.topk(max(CHILDREN)).indices].cumsum(0)
    sampled = (target + noise).argmax(-1, keepdim=True)
    scores = drafter + noise
    better = (scores > scores.gather(-1, sampled)).sum(-1)  # rank of the target's token in the drafter's order
    coupled = [float((better < size).double().mean()) for size in CHILDREN]
    return np.array(
        [float(torch.minimum(target_probs, draft_probs).sum()), *(float(top[size - 1]) for size in CHILDREN), *coupled]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    """Measure, print and write the results; return the exit code."""
    require_plots()
    plot = plot_beside(args.json, args.plot)
    options = CouplingOptions(
        args.contexts,
        args.draws,
        args.vocab,
        args.model,
        args.drafter,
        tuple(args.prompts),
        args.limit,
        args.dtype,
        args.seed,
    )
    results = measure_coupling(options)
    print("\n".join(coupling_lines(results)))
    write_report(make_report("coupling", args.seed, plain(options), results, NOTES, PACKAGES), args.json)
    write_plot(plot, "acceptance at a node: noise shared with the target", coupling_panels(results))
    print(f"wrote {args.json} and {plot}")
    return 0


def _summary(rows: npt.NDArray[np.float64]) -> dict[str, Any]:
    means = rows.mean(0)
    children = {}
    for place, size in enumerate(CHILDREN):
        top, coupled = 1 + place, 1 + len(CHILDREN) + place
        difference = rows[:, coupled] - rows[:, top]
        children[str(size)] = {
            "top": float(means[top]),
            "coupled": float(means[coupled]),
            "difference": float(difference.mean()),
            "half_width_95": float(1.96 * difference.std(ddof=1) / np.sqrt(len(rows))),
        }
    return {"one_minus_tv": float(means[0]), "contexts": len(rows), "children": children}


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("coupling", __doc__, *EXAMPLES)
    defaults = CouplingOptions()
    numbers = {
        "contexts": "nodes compared",
        "draws": "of the noise at each node",
        "vocab": "tokens of made-up targets",
        "limit": "prompts of each file, chosen at random",
        "seed": "of every random choice",
    }
    for name, text in numbers.items():
        default = getattr(defaults, name)
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{text} (default: %(default)s)")
    parser.add_argument("--model", help="folder or hub name of a real target (default: synthetic logits)")
    parser.add_argument("--drafter", help="folder or hub name of a real drafter (default: noisy copies of the target)")
    parser.add_argument(
        "--prompts",
        nargs="+",
        type=Path,
        default=[],
        metavar="PATH",
        help="prompts for the models: .jsonl files, or folders of them",
    )
    parser.add_argument("--dtype", default=defaults.dtype, help="auto, float32, bfloat16 ... (default: as stored)")
    parser.add_argument(
        "--json",
        type=Path,
        default=Path("suffolk-coupling.json"),
        metavar="FILE",
        help="file for the results (default: %(default)s)",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="file for the plot (default: the JSON file's name with .png)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())


def coupling_lines(results: dict[str, Any]) -> list[str]:
    """Format the table, the summary, and the notes."""
    sizes = results["children"]
    headers = ["drafter, temperature", "1 - TV"]
    for size in sizes:
        headers += [f"top-{size}", f"coupled {size}", f"by, k={size}"]
    rows = []
    for drafter, found in results["drafters"].items():
        for temperature, each in found.items():
            row: list[object] = [f"{drafter}, T={temperature}", f"{each['one_minus_tv']:.3f}"]
            for size in sizes:
                at = each["children"][str(size)]
                gap = f"{at['difference']:+.3f}±{at['half_width_95']:.3f}"
                row += [f"{at['top']:.3f}", f"{at['coupled']:.3f}", gap]
            rows.append(row)
    return [format_table(headers, rows), *statement(results), *(f"note: {note}" for note in NOTES)]


def statement(results: dict[str, Any]) -> list[str]:
    """State whether coupling gains at every temperature and number of children, and where it does not."""
    cells = [
        (f"{drafter}, T={temperature}, k={size}", at["difference"], at["half_width_95"])
        for drafter, found in results["drafters"].items()
        for temperature, each in found.items()
        for size, at in each["children"].items()
    ]
    worse = [f"{name} ({gap:+.3f}±{width:.3f})" for name, gap, width in cells if gap + width < 0]
    better = sum(gap - width > 0 for _, gap, width in cells)
    lines = [
        f"coupled compared to top-k in {len(cells)} cells: more in {better}, no difference seen in "
        f"{len(cells) - better - len(worse)}, less in {len(worse)}"
    ]
    return lines + ([f"less: {'; '.join(worse)}"] if worse else [])


def coupling_panels(results: dict[str, Any]) -> list[Panel]:
    """Plot one chart per drafter: both rules at each temperature and number of children."""
    panels = []
    for drafter, found in results["drafters"].items():
        labels, series = [], dict[str, list[float | None]](top=[], coupled=[])
        for temperature, each in found.items():
            for size, at in each["children"].items():
                labels.append(f"T={temperature}\nk={size}" if size == "1" else f"\nk={size}")
                series["top"].append(at["top"])
                series["coupled"].append(at["coupled"])
        named = {"top-k of the drafter": series["top"], "top-k with the target's noise": series["coupled"]}
        panels.append(Panel(drafter, "acceptance at a node", labels, named))
    return panels
