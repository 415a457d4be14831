"""The front matter of a head's card, which the Hugging Face hub reads."""

from __future__ import annotations

from typing import Any

from huggingface_hub import ModelCardData
from huggingface_hub.repocard_data import EvalResult

from suffolk.serving.decoding.engine.model.model_folder import find_folder

LICENSE = "unknown"
"""Neither the head's licence nor that of its base model is known here."""


def base_model(model: str) -> str:
    """The name of the target: its hub name, or the name of its folder."""
    folder = find_folder(model)
    return model if folder is None else folder.resolve().name


def metadata(run: dict[str, Any]) -> ModelCardData:
    """The front matter for ``run``, as from ``card.describe``. It has results only where documents were held out."""
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
