"""Tests interrupted runs that resume, their checkpoints, and their cached features."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.serving.decoding.drafters.training.features import FeatureSource
from suffolk.serving.decoding.drafters.training.options import Regeneration
from suffolk.serving.decoding.engine.loop.engine import Engine
from tests.support.interrupts import default_interrupts
from tests.support.linear_head import LinearHead, weights
from tests.support.training_runs import Listening, equal, options, train


@pytest.mark.parametrize(
    "more",
    [{}, {"head_options": {"dropout": 0.3}}, {"draft_share": 0.5}, {"cache_bytes": 1 << 20}, {"accumulate": 3}],
)
def test_an_interrupted_run_ends_with_the_same_head(
    model: str, corpus: str, tmp_path: Path, more: dict[str, Any]
) -> None:
    whole, parts = (
        options(model, corpus, tmp_path / "whole", **more),
        options(model, corpus, tmp_path / "parts", **more),
    )
    expected = train(whole)
    listening = Listening(lambda: signal.raise_signal(signal.SIGINT), step=5)
    with default_interrupts(), pytest.raises(KeyboardInterrupt):
        train(parts, listening)
    assert not parts.output.exists()
    assert listening.notes[-2:] == [
        "saved a checkpoint after step 5",
        "interrupted after step 5 of 8; the same command with --resume goes on",
    ]
    with pytest.raises(InvalidArgument, match="holds an interrupted run; add --resume"):
        train(parts)
    again = Listening()
    found = train(parts, again, resume=True)
    assert "going on after step 5 of 8" in again.notes
    assert equal(whole.output, parts.output)
    timeless = [[point | {"seconds": 0} for point in each["curve"]] for each in (expected, found)]
    assert timeless[0] == timeless[1]
    assert not (tmp_path / "parts.training").exists()


def test_an_interrupt_before_the_first_checkpoint_says_that_nothing_was_saved(
    model: str, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: LinearHead, batches: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LinearHead, "initialize", interrupted)
    listening = Listening()
    with pytest.raises(KeyboardInterrupt):
        train(options(model, corpus, tmp_path / "head"), listening)
    assert listening.notes[-1] == (
        "interrupted after step 0 of 8; nothing was saved yet, and the same command without --resume starts again"
    )
    assert not (tmp_path / "head.training").exists()


def test_an_interrupt_between_the_batches_of_a_step_drops_that_step(
    model: str, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint has the random state of the beginning of the step, because dropout has changed the state since."""
    more: dict[str, Any] = {"accumulate": 3, "head_options": {"dropout": 0.3}}
    train(options(model, corpus, tmp_path / "whole", **more))
    losses, calls = LinearHead.losses, []

    def interrupting(self: LinearHead, batch: Any) -> Any:
        calls.append(self.training and torch.is_grad_enabled())
        if sum(calls) == 11:  # the second batch of the fourth step
            signal.raise_signal(signal.SIGINT)
        return losses(self, batch)

    listening = Listening()
    with default_interrupts(), monkeypatch.context() as patch:
        patch.setattr(LinearHead, "losses", interrupting)
        with pytest.raises(KeyboardInterrupt):
            train(options(model, corpus, tmp_path / "parts", **more), listening)
    assert "interrupted after step 3 of 8" in listening.notes[-1]
    train(options(model, corpus, tmp_path / "parts", **more), resume=True)
    assert equal(tmp_path / "whole", tmp_path / "parts")


def test_kept_features_are_computed_once_and_give_the_same_head(
    model: str, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: Counter[int] = Counter()
    compute = FeatureSource._compute

    def counting(self: FeatureSource, numbers: Any) -> Any:
        computed.update(numbers)
        return compute(self, numbers)

    monkeypatch.setattr(FeatureSource, "_compute", counting)
    more: dict[str, Any] = {"steps": None, "passes": 2.0, "evaluate_every": 10}
    train(options(model, corpus, tmp_path / "online", **more))
    assert set(computed.values()) == {2, 4}  # two passes; evaluations after 0, 10, 20 and 30 steps
    computed.clear()
    train(options(model, corpus, tmp_path / "kept", cache_bytes=10 << 20, **more))
    assert set(computed.values()) == {1}
    online, kept = weights(tmp_path / "online"), weights(tmp_path / "kept")
    assert all(float((online[name] - kept[name]).abs().max()) < 1e-6 for name in online)
    computed.clear()
    train(options(model, corpus, tmp_path / "some", cache_bytes=200_000, **more))
    assert set(computed.values()) == {1, 2}  # the rest continues without it


def test_a_loss_that_is_no_number_ends_the_run_and_keeps_the_last_checkpoint(
    model: str, corpus: str, tmp_path: Path
) -> None:
    broken = options(model, corpus, tmp_path / "head", head_options={"breaks_at": 6})
    with pytest.raises(
        InvalidArgument, match="step 6: the loss is nan; the last checkpoint is in .*head.training; lower"
    ):
        train(broken)
    assert not broken.output.exists()
    assert (tmp_path / "head.training" / "checkpoint.pt").exists()
    early = options(model, corpus, tmp_path / "early", head_options={"breaks_at": 2})
    with pytest.raises(InvalidArgument, match="step 2: the loss is nan; nothing was saved"):
        train(early)
    assert not list(tmp_path.glob("early*"))


def test_a_run_may_go_on_with_another_rate_but_no_other_data(model: str, corpus: str, tmp_path: Path) -> None:
    broken = options(model, corpus, tmp_path / "head", head_options={"breaks_at": 6}, seed=3)
    with pytest.raises(InvalidArgument, match="the loss is nan"):
        train(broken)
    more: dict[str, Any] = {"head_options": {"breaks_at": 6}, "seed": 3}
    for changed, said in (({"seed": 4}, "seed: 4 now, and 3 in"), ({"batch": 2}, "batch: 2 now, and 4 in")):
        with pytest.raises(InvalidArgument, match=f"{said} the run to resume"):
            train(options(model, corpus, tmp_path / "head", **(more | changed)), resume=True)
    letters, text = Path(corpus), Path(corpus).read_text()
    letters.write_text(text + '{"text": "more of it"}\n')
    try:
        with pytest.raises(InvalidArgument, match="data: .* now, and"):
            train(options(model, corpus, tmp_path / "head", **more), resume=True)
    finally:
        letters.write_text(text)
    found = train(
        options(model, corpus, tmp_path / "head", learning_rate=0.001, **more), resume=True
    )  # 5 batches to go
    assert found["result"]["steps"] == 8


def test_answers_are_kept_for_other_settings(model: str, corpus: str, tmp_path: Path) -> None:
    """A wrong setting of a later stage does not discard hours of generated answers."""
    more: dict[str, Any] = {"regenerate": Regeneration(0.0, 8, 8), "steps": 2}
    with pytest.raises(InvalidArgument, match="the loss is nan"):
        train(options(model, corpus, tmp_path / "head", head_options={"breaks_at": 1}, **more))
    answers = tmp_path / "head.training" / "answers.jsonl"
    assert len(answers.read_text().splitlines()) == 60
    with pytest.raises(InvalidArgument, match="seed: 1 now, and 0 in the run to resume"):
        train(options(model, corpus, tmp_path / "head", seed=1, **more), resume=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "generate", lambda *words: pytest.fail("asked again"))
        found = train(options(model, corpus, tmp_path / "head", batch=2, **more), resume=True)
    assert found["corpus"]["documents"] + found["corpus"]["held_out_documents"] == 60


def test_a_damaged_checkpoint_is_refused(model: str, corpus: str, tmp_path: Path) -> None:
    chosen = options(model, corpus, tmp_path / "head", head_options={"breaks_at": 6})
    with pytest.raises(InvalidArgument):
        train(chosen)
    checkpoint = tmp_path / "head.training" / "checkpoint.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    with pytest.raises(Corruption, match="checkpoint .*: cannot be used"):
        train(chosen, resume=True)
    assert checkpoint.exists()
