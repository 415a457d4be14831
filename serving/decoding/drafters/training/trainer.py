"""The training loop: steps of AdamW on a head, with evaluations and checkpoints. Ctrl-C ends the loop at a safe point."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from suffolk.build_index.progress import WorkProgress
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.failpoints import failpoint
from suffolk.serving.decoding.drafters.training.checkpoint import load_checkpoint, random_state, save_checkpoint
from suffolk.serving.decoding.drafters.training.corpus import Corpus
from suffolk.serving.decoding.drafters.training.evaluation import Point, Tally, evaluate, percentages
from suffolk.serving.decoding.drafters.training.features import FeatureSource
from suffolk.serving.decoding.drafters.training.head import Batch, TrainableHead
from suffolk.serving.decoding.drafters.training.options import TrainOptions
from suffolk.serving.decoding.engine.model.memory import memory_guard

BETAS = (0.9, 0.95)
"""AdamW's betas, as in EAGLE (Li et al. 2024)."""
_SMALLER = (
    "give fewer windows in a pass (--batch, and more to accumulate), a smaller --window, or a smaller dtype (bfloat16)"
)


class Trainer:
    """One run, from its first step or its last checkpoint to its end. Not thread-safe; uses torch's global random generators.

    Attributes:
        step: number of steps done.
        steps: number of steps of the run.
        curve: the learning curve so far.
    """

    def __init__(
        self,
        head: TrainableHead,
        source: FeatureSource,
        corpus: Corpus,
        options: TrainOptions,
        checkpoint: Path,
        progress: WorkProgress,
        device: torch.device,
    ) -> None:
        self._head, self._source, self._corpus, self._options = head, source, corpus, options
        self._checkpoint, self._progress, self._device = checkpoint, progress, device
        self._parameters = list(head.parameters())
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=options.learning_rate, betas=BETAS, weight_decay=options.weight_decay
        )
        self.steps = options.count_steps(len(corpus.training))
        self.step = self._tokens = 0
        self._seconds = 0.0
        # keeps weighted losses small, because gradients may be fp16
        self._scale = 1.0 / (options.batch * options.window)
        self._tally = Tally()
        self.curve: list[Point] = []

    def resume(self) -> None:
        """Restore the checkpoint. Raises Corruption if it is damaged or does not fit."""
        facts = load_checkpoint(self._checkpoint, self._parameters, self._optimizer, self._device)
        self.step, self._tokens, self._seconds = facts["step"], facts["tokens"], facts["seconds"]
        self._tally = Tally(**facts["tally"])
        self.curve = [Point(**point) for point in facts["curve"]]
        if self._source.cache is not None:
            self._source.cache.take_over(facts["shards"], facts["cache_full"])

    def run(self) -> None:
        """Train to the last step.

        Raises:
            InvalidArgument: the loss or its gradient is not finite. The last checkpoint remains.
            KeyboardInterrupt: Ctrl-C was pressed. A checkpoint is saved first.
            ResourceExhausted: out of memory or disk space.
        """
        with Interrupts() as interrupts, memory_guard("training", _SMALLER):
            if not self.curve:
                with torch.no_grad():
                    self._head.initialize(self._first_batches(interrupts))
                self._measure()
            while self.step < self.steps:
                random = random_state(self._device)
                if self._train_step(interrupts):
                    random = random_state(self._device)
                    if self.step % self._options.evaluate_every == 0 or self.step == self.steps:
                        self._measure()
                if interrupts.wanted:
                    self.save(random)
                    raise KeyboardInterrupt
                if self.step % self._options.save_every == 0 or self.step == self.steps:
                    self.save(random)
                failpoint("train.step")

    def save(self, random: dict[str, torch.Tensor]) -> None:
        """Write a checkpoint, with the state of the feature cache."""
        cache = self._source.cache
        if cache is not None:
            cache.flush()
        facts: dict[str, Any] = {
            "step": self.step,
            "tokens": self._tokens,
            "seconds": self._seconds,
            "tally": asdict(self._tally),
            "curve": [asdict(point) for point in self.curve],
            "shards": 0 if cache is None else cache.shards,
            "cache_full": cache is not None and cache.full,
        }
        save_checkpoint(self._checkpoint, self._parameters, self._optimizer, random, facts)
        self._progress.note(f"saved a checkpoint after step {self.step}")

    def _first_batches(self, interrupts: Interrupts) -> Iterator[Batch]:
        """The batches of the first pass over the text."""
        options, windows = self._options, len(self._corpus.training)
        for step in range(math.ceil(windows / options.batch)):
            for numbers in batches_of(step, windows, options.batch, 1, options.seed):
                if interrupts.wanted:
                    raise KeyboardInterrupt
                self._progress.advance("starting", step * options.batch / windows, "first weights")
                yield self._source.batch(numbers)

    def _train_step(self, interrupts: Interrupts) -> bool:
        """Make one step. Batches are weighted by their counted tokens. Returns False if the step was interrupted."""
        begin = time.monotonic()
        self._optimizer.zero_grad()
        tally, tokens = Tally(), 0
        options, windows, share = self._options, self._corpus.training, self._options.draft_share
        for numbers in batches_of(self.step, len(windows), options.batch, options.accumulate, options.seed):
            if interrupts.wanted:
                return False
            batch = self._source.batch(numbers)
            found = self._head.losses(batch if share == 1 else batch.thin(share, self._head.ahead))
            tally.add(found)
            self._require_finite("loss", tally.loss)
            (found.loss * (float(found.seen[0]) * self._scale)).backward()  # type: ignore[no-untyped-call]
            tokens += sum(len(windows[number].tokens) for number in numbers)
        self._apply(tally.weight * self._scale)
        self.step += 1
        self._tokens += tokens
        self._tally.merge(tally)
        self._seconds += time.monotonic() - begin
        self._report(tally, tokens / max(time.monotonic() - begin, 1e-9))
        return True

    def _apply(self, weight: float) -> None:
        """Update the parameters with the mean gradient."""
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad /= max(weight, self._scale)
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._options.clip or math.inf)
        self._require_finite("gradient", float(norm))
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate(self.step)
        self._optimizer.step()

    def _rate(self, step: int) -> float:
        return learning_rate(step, self.steps, self._options.learning_rate, self._options.warmup)

    def _measure(self) -> None:
        """Evaluate the head, and add a point to the curve."""
        held_out = self._evaluate()
        trained = self._tally if self._tally.weight else None
        self.curve.append(
            Point(
                step=self.step,
                tokens=self._tokens,
                seconds=round(self._seconds, 3),
                learning_rate=self._rate(self.step - 1) if self.step else 0.0,
                loss=trained.mean_loss if trained else None,
                acceptance=trained.acceptance if trained else None,
                held_out_loss=held_out.mean_loss if held_out else None,
                held_out_acceptance=held_out.acceptance if held_out else None,
            )
        )
        self._tally = Tally()
        if held_out is not None:
            self._progress.note(
                f"step {self.step}: held-out loss {held_out.mean_loss:.4f}, acceptance {percentages(held_out.acceptance)}"
            )

    def _evaluate(self) -> Tally | None:
        """The tally of the first held-out windows; None if there are none."""
        options, first = self._options, len(self._corpus.training)
        count = min(len(self._corpus.held_out), options.evaluate_windows)
        if not count:
            return None
        windows = range(first, first + count)
        tally = evaluate(self._head, self._source, windows, options.batch, options.seed, self._device)
        self._require_finite("held-out loss", tally.loss)
        return tally

    def _report(self, tally: Tally, speed: float) -> None:
        facts = f"loss {tally.mean_loss:.4f}, acceptance {percentages(tally.acceptance)}, {speed:,.0f} tokens/s"
        self._progress.advance("training", self.step / self.steps, f"step {self.step} of {self.steps}, {facts}")

    def _require_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            kept = f"the last checkpoint is in {self._checkpoint.parent}"
            if not self._checkpoint.exists():
                kept = "nothing was saved"
            raise InvalidArgument(
                f"step {self.step + 1}: the {what} is {value}; {kept}; lower the learning rate, now "
                f"{self._options.learning_rate:g}, or take a wider --dtype"
            )


class Interrupts:
    """Context manager. Inside the block, the first SIGINT only sets ``wanted``. The second raises KeyboardInterrupt.

    It has no effect outside the main thread, or if SIGINT is ignored or has another handler.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if usual and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True


def learning_rate(step: int, steps: int, highest: float, warmup: float) -> float:
    """The learning rate of a step, 0 <= step < steps: linear warm-up, then half a cosine to 0.

    The warm-up to ``highest`` takes the share ``warmup`` of the steps. Source: Loshchilov and Hutter 2017 (SGDR), without restarts.
    """
    rising = round(warmup * steps)
    if step < rising:
        return highest * (step + 1) / rising
    return highest * 0.5 * (1.0 + math.cos(math.pi * (step - rising) / (steps - rising)))


def batches_of(step: int, windows: int, batch: int, accumulate: int, seed: int) -> Iterator[list[int]]:
    """The numbers of the windows in each of the ``accumulate`` batches of a step. The last batch of a pass may be smaller.

    Each pass over all windows has its own order. The order depends only on the arguments, so a resumed run gets the same batches.
    """
    in_a_pass = math.ceil(windows / batch)
    first = step * accumulate
    order, ordered = np.empty(0, np.int64), -1
    for number in range(first, first + accumulate):
        if number // in_a_pass != ordered:
            ordered = number // in_a_pass
            order = np.random.default_rng([seed, ordered]).permutation(windows)
        begin = number % in_a_pass * batch
        yield order[begin : begin + batch].tolist()
