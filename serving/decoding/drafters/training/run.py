"""Trains a head, from the corpus to the folder of the head."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch

from suffolk.build_index.inputs import Inputs
from suffolk.build_index.progress import WorkProgress, rate
from suffolk.build_index.report import megabytes
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.drafters.training.card import describe, write_card
from suffolk.serving.decoding.drafters.training.corpus import Corpus, make_corpus
from suffolk.serving.decoding.drafters.training.documents import TrainingDocument, encode_row
from suffolk.serving.decoding.drafters.training.evaluation import draft_depth
from suffolk.serving.decoding.drafters.training.feature_cache import FeatureCache
from suffolk.serving.decoding.drafters.training.features import FeatureSource
from suffolk.serving.decoding.drafters.training.head import TrainableHead
from suffolk.serving.decoding.drafters.training.heads import head_maker
from suffolk.serving.decoding.drafters.training.options import TrainOptions
from suffolk.serving.decoding.drafters.training.regenerate import regenerate
from suffolk.serving.decoding.drafters.training.rows import describe_files, find_corpus, read_rows, reading_options
from suffolk.serving.decoding.drafters.training.trainer import Trainer
from suffolk.serving.decoding.drafters.training.workspace import TrainingWorkspace, open_workspace
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.target_loader import read_context_length

Load = Callable[[TrainOptions, bool], Target]
"""Loads the target of a run. The flag is ``accelerate`` of ``Target.load``."""


def load_target(options: TrainOptions, accelerate: bool) -> Target:
    """A ``Load``. Raises the errors of ``Target.load``."""
    return Target.load(options.model, options.dtype, options.device, options.batch * options.window, accelerate)


def train(
    options: TrainOptions,
    progress: WorkProgress | None = None,
    resume: bool = False,
    load: Load = load_target,
) -> dict[str, Any]:
    """Train a head and write its folder. Returns the content of its ``training.json``.

    Args:
        resume: whether to continue a killed or interrupted run from its last checkpoint. On a CPU, the head then equals the
            head of an uninterrupted run, bit for bit.
        load: loads the target. A target that writes answers is accelerated. The target of training is not, because gradients
            pass through its output layer.

    Raises:
        SuffolkError: a file, setting or folder cannot be used.
        KeyboardInterrupt: Ctrl-C was pressed. The work so far is saved.
    """
    show = progress or WorkProgress()
    maker = head_maker(options.head, options.head_options)
    inputs = find_corpus(options)
    _require_window(options)
    files = describe_files(inputs)
    settings = options.to_dict() | {"data": [asdict(file) for file in files]}
    with open_workspace(options.output, settings, resume) as workspace, torch.random.fork_rng():
        skipped = Counter[str](inputs.skipped)
        answers = _write_answers(options, inputs, load, workspace, skipped, show) if options.regenerate else None
        target = load(options, False)
        target.model.requires_grad_(False)
        torch.manual_seed(options.seed)
        head = maker(target)
        depth = draft_depth(head, target)
        documents = _read_documents(options, inputs, target, skipped, show) if answers is None else answers
        corpus = make_corpus(documents, options, depth, skipped)
        trainer = _trainer(head, target, corpus, options, workspace, show)
        show.note(_plan(corpus, trainer, depth, options.held_out))
        try:
            trainer.run()
            found = describe(options, files, corpus, trainer.curve, sum(each.numel() for each in head.parameters()))
            folder = workspace.new_result()
            head.save(folder)
            write_card(folder, found)
            workspace.publish()
        except KeyboardInterrupt:
            again = "the same command with --resume goes on"
            if not workspace.holds_work():
                again = "nothing was saved yet, and the same command without --resume starts again"
            show.note(f"interrupted after step {trainer.step} of {trainer.steps}; {again}")
            raise
        return found


def _require_window(options: TrainOptions) -> None:
    """Raise InvalidArgument if the window exceeds the model's context length."""
    limit = read_context_length(options.model)
    if limit is not None and options.window > limit:
        raise InvalidArgument(
            Field("window"), f" is {options.window}; model {options.model} takes {limit} tokens, so give that or less"
        )


def _write_answers(
    options: TrainOptions,
    inputs: Inputs,
    load: Load,
    workspace: TrainingWorkspace,
    skipped: Counter[str],
    show: WorkProgress,
) -> list[TrainingDocument]:
    """The documents with the target's answers. The accelerated target is released before the one for training is loaded."""
    assert options.regenerate is not None
    read, answered, begin = 0.0, 0, time.monotonic()

    def report(share: float) -> None:
        nonlocal read
        read = share

    def count(answers: int) -> None:
        nonlocal answered
        answered = answers
        show.advance("reading", read, f"{answered:,} answers, {rate(answered, time.monotonic() - begin)}")

    target = load(options, True)
    rows = read_rows(inputs, reading_options(options), skipped, report)
    try:
        return list(
            regenerate(
                target, rows, options.regenerate, options.window, options.seed, workspace.answers, skipped, count
            )
        )
    except KeyboardInterrupt:
        show.note(f"interrupted after {answered} answers, which are kept; the same command with --resume goes on")
        raise


def _read_documents(
    options: TrainOptions, inputs: Inputs, target: Target, skipped: Counter[str], show: WorkProgress
) -> Iterator[TrainingDocument]:
    size, begin = inputs.size, time.monotonic()

    def report(share: float) -> None:
        read = share * size
        show.advance("reading", share, f"{megabytes(read)}, {rate(read / 1e6, time.monotonic() - begin, 'MB')}")

    for row in read_rows(inputs, reading_options(options), skipped, report):
        try:
            yield from encode_row(target, row)
        except InvalidArgument as reason:
            skipped[f"rows: {reason}"] += 1


def _trainer(
    head: TrainableHead,
    target: Target,
    corpus: Corpus,
    options: TrainOptions,
    workspace: TrainingWorkspace,
    show: WorkProgress,
) -> Trainer:
    """A trainer at the last checkpoint, or a new one if there is none."""
    torch.manual_seed(options.seed)
    resumed = workspace.checkpoint.exists()
    if not resumed:
        shutil.rmtree(workspace.features, ignore_errors=True)
    cache = FeatureCache(workspace.features, options.cache_bytes) if options.cache_bytes else None
    source = FeatureSource(target, corpus.windows, head.layers, options.batch, cache)
    trainer = Trainer(head, source, corpus, options, workspace.checkpoint, show, target.device)
    if resumed:
        trainer.resume()
        show.note(f"going on after step {trainer.step} of {trainer.steps}")
    return trainer


def _plan(corpus: Corpus, trainer: Trainer, depth: int, share: float) -> str:
    total = corpus.documents + corpus.held_out_documents
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in corpus.skipped.items() if count)
    return (
        f"{corpus.documents:,} documents, {len(corpus.training):,} windows, {corpus.tokens:,} tokens ({corpus.counted:,} count), "
        f"{corpus.held_out_documents:,} documents held out"
        + (f" ({share:g} of {total} would be none)" if 0 < share * total < 1 else "")
        + f"; {trainer.steps:,} steps, depth {depth}"
        + (f"; left out: {left_out}" if left_out else "")
    )
