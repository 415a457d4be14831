"""Writes ``README.md`` and ``training.json``, which describe a trained head."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.repocard_data import EvalResult

from suffolk.datastore.version import __version__
from suffolk.serving.decoding.drafters.training.corpus import Corpus
from suffolk.serving.decoding.drafters.training.evaluation import Point, expected_tokens, percentages
from suffolk.serving.decoding.drafters.training.options import TrainOptions
from suffolk.serving.decoding.drafters.training.rows import DataFile
from suffolk.serving.decoding.engine.model.model_folder import find_folder

LICENSE = "unknown"
"""The licences of the head and of its base model are unknown here."""


def describe(
    options: TrainOptions, files: Sequence[DataFile], corpus: Corpus, curve: Sequence[Point], parameters: int
) -> dict[str, Any]:
    """The content of ``training.json``."""
    last = curve[-1]
    return {
        "head": options.head,
        "parameters": parameters,
        "settings": options.to_dict(),
        "data": [asdict(file) for file in files],
        "corpus": corpus.to_dict(),
        "versions": {
            "suffolk": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        "result": {
            "steps": last.step,
            "tokens": last.tokens,
            "seconds": last.seconds,
            "held_out_loss": last.held_out_loss,
            "held_out_acceptance": last.held_out_acceptance,
            "expected_tokens": None if last.held_out_acceptance is None else expected_tokens(last.held_out_acceptance),
        },
        "curve": [asdict(point) for point in curve],
    }


def write_card(folder: Path, run: dict[str, Any]) -> None:
    """Write ``training.json`` and ``README.md``. ``run``: as from ``describe``."""
    (folder / "training.json").write_text(json.dumps(run, indent=1) + "\n")
    ModelCard(f"---\n{metadata(run)}\n---\n\n" + "\n".join(_card(run)) + "\n").save(folder / "README.md")


def _card(run: dict[str, Any]) -> list[str]:
    settings, corpus, result = run["settings"], run["corpus"], run["result"]
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return [
        f"# Draft head for {base_model(settings['model'])}: {run['head']}",
        "",
        f"It drafts for `{settings['model']}`, whose weights are unchanged. {run['parameters']:,} parameters, trained "
        f"in {result['steps']:,} steps on {result['tokens']:,} tokens in {result['seconds']:,.0f} s; made by `suffolk train`.",
        "",
        *_licence(settings["model"]),
        "",
        "## Use it",
        "",
        "With Suffolk, and the base model that it was trained for:",
        "",
        "```",
        'suffolk generate --model BASE_MODEL --head THIS_FOLDER --compare-plain "Write a sort function."',
        "suffolk worker --model BASE_MODEL --head THIS_FOLDER",
        "```",
        "",
        "Drafts change the speed, not the text. The speed-up is not measured here: it depends on the device, the prompts and "
        "the temperature. `suffolk bench decode --model BASE_MODEL --head THIS_FOLDER --prompts PROMPTS` measures it.",
        "",
        "## How often it is right",
        "",
        *_acceptance(result),
        "",
        "## Learning curve",
        "",
        "| step | tokens | learning rate | loss | acceptance by depth | held-out loss | held-out acceptance by depth |",
        "|---:|---:|---:|---:|---|---:|---|",
        *map(_row, run["curve"]),
        "",
        "## Data",
        "",
        f"{corpus['documents']:,} documents in {corpus['windows']:,} windows: {corpus['tokens']:,} tokens, of which "
        f"{corpus['counted_tokens']:,} count. Held out: {corpus['held_out_documents']:,} documents in "
        f"{corpus['held_out_windows']:,} windows. " + _origin(settings),
        "",
        *(f"Left out: {count:,} {reason}.  " for reason, count in corpus["skipped"].items()),
        "",
        "| file | bytes | SHA-256 |",
        "|---|---:|---|",
        *(f"| `{file['path']}` | {file['bytes']:,} | `{file['sha256']}` |" for file in run["data"]),
        "",
        "## Settings",
        "",
        *(f"- {name.replace('_', ' ')}: `{json.dumps(value)}`" for name, value in settings.items()),
        f"- versions: {versions}",
    ]


def _licence(model: str) -> list[str]:
    lines = [
        "**Licence: unknown.** `suffolk train` does not know the licence of the base model, nor the corpus's. Both may bind "
        "this head. Set `license` above before you share it."
    ]
    if find_folder(model) is not None:
        lines += ["", "The base model was read from a local folder. Set `base_model` above to its name on the hub."]
    return lines


def _acceptance(result: dict[str, Any]) -> list[str]:
    shares = result["held_out_acceptance"]
    if shares is None:
        return ["Not measured: no documents were held out."]
    return [
        "Of held-out tokens whose predecessors in the draft were right, the share that the head's best candidate hits:",
        "",
        "| depth | " + " | ".join(str(depth) for depth in range(1, len(shares) + 1)) + " |",
        "|---|" + "---:|" * len(shares),
        "| acceptance | " + " | ".join(f"{share:.1%}" for share in shares) + " |",
        "",
        f"A draft with one candidate a depth would have {result['expected_tokens']:.2f} tokens accepted on average. The text is "
        "compared with the corpus, not with the target's own text, unless the target generated the answers.",
    ]


def _row(point: dict[str, Any]) -> str:
    loss, held_out = ("-" if value is None else f"{value:.4f}" for value in (point["loss"], point["held_out_loss"]))
    return (
        f"| {point['step']:,} | {point['tokens']:,} | {point['learning_rate']:.2e} | {loss} | {percentages(point['acceptance'])} "
        f"| {held_out} | {percentages(point['held_out_acceptance'])} |"
    )


def _origin(settings: dict[str, Any]) -> str:
    regenerate = settings["regenerate"]
    if regenerate is None:
        return "Answers are the corpus's own."
    return f"Answers were generated by the target, at temperature {regenerate['temperature']:g}."


def base_model(model: str) -> str:
    """The name of the target: its hub name, or the name of its folder."""
    folder = find_folder(model)
    return model if folder is None else folder.resolve().name


def metadata(run: dict[str, Any]) -> ModelCardData:
    """The front matter for ``run``, as from ``card.describe``. It has results only if documents were held out."""
    base = base_model(run["settings"]["model"])
    shares = run["result"]["held_out_acceptance"]
    return ModelCardData(
        base_model=base,
        library_name="suffolk",
        license=LICENSE,
        tags=["speculative-decoding", "draft-head", run["head"]],
        model_name=None if shares is None else f"{run['head']} head for {base}",
        eval_results=None if shares is None else [_result(depth, share) for depth, share in enumerate(shares, 1)],
    )


def _result(depth: int, share: float) -> EvalResult:
    return EvalResult(
        task_type="text-generation",
        task_name="Drafting",
        dataset_type="held-out",
        dataset_name="held-out documents of the training corpus",
        metric_type="acceptance",
        metric_name=f"acceptance at depth {depth}",
        metric_value=round(share, 4),
    )
