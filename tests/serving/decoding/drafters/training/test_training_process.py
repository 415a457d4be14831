"""Tests training runs as processes: progress, Ctrl-C, folders, and checkpoints that do not match."""

from __future__ import annotations

import io
import signal
import threading
from pathlib import Path

import pytest
import torch

from suffolk.build_index.progress import PlainProgress, show_progress
from suffolk.datastore.errors import Corruption, ResourceExhausted, Unavailable
from suffolk.serving.decoding.drafters.training.checkpoint import load_checkpoint, random_state, save_checkpoint
from suffolk.serving.decoding.drafters.training.trainer import Interrupts
from suffolk.serving.decoding.drafters.training.workspace import open_workspace
from tests.support.interrupts import default_interrupts

CPU = torch.device("cpu")


def test_plain_progress_says_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("suffolk.build_index.progress.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    shown = PlainProgress(stream)
    for now[0], work, share in ((0, "reading", 0.1), (29, "reading", 0.2), (31, "reading", 0.4), (40, "training", 0.5),
                                (71, "training", 0.6), (90, "training", 0.7), (200, "training", 0.6)):  # fmt: skip
        shown.advance(work, share, "loss 1")
    assert stream.getvalue().splitlines() == [
        "reading:  40%, loss 1, about 62 s left",
        "training:  60%, loss 1, about 124 s left",  # the resumed run began at half, and a tenth took 31 s
        "training:  60%, loss 1, about 640 s left",
    ]


def test_a_terminal_gets_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with show_progress(stream) as shown:
        shown.advance("reading", 1.0, "7 answers")
        shown.note("[noted]")
        shown.advance("training", 0.5, "loss 1.25")
    assert "[noted]" in stream.getvalue()
    assert "loss 1.25" in stream.getvalue()


def test_the_first_interrupt_is_noted_and_the_second_heeded() -> None:
    with default_interrupts():
        with Interrupts() as interrupts:
            assert not interrupts.wanted
            signal.raise_signal(signal.SIGINT)
            assert interrupts.wanted
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_interrupts_that_others_handle_are_left_to_them() -> None:
    found = []
    before = signal.signal(signal.SIGINT, lambda number, frame: found.append(number))
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
        thread = threading.Thread(target=lambda: Interrupts().__enter__())
        thread.start()
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert found == [signal.SIGINT]
    assert not interrupts.wanted


def test_a_second_run_is_kept_away_from_the_first_one_s_work(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "head", {"seed": 1}, resume=False) as workspace:
        for resume in (False, True):
            with (
                pytest.raises(Unavailable, match="another process is writing to"),
                open_workspace(tmp_path / "head", {"seed": 1}, resume),
            ):
                pass
        assert workspace.settings.exists()


def test_a_run_that_fails_leaves_what_is_worth_going_on_with(tmp_path: Path) -> None:
    def fail(output: Path, work: str) -> bool:
        try:
            with open_workspace(output, {}, resume=False) as workspace:
                (workspace.folder / work).write_text("x")
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            return workspace.folder.exists()

    assert not fail(tmp_path / "one", "features")
    assert fail(tmp_path / "two", "checkpoint.pt")
    assert fail(tmp_path / "three", "answers.jsonl")


def test_settings_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "head", {}, resume=False) as workspace:
        workspace.settings.write_text("[")
    with pytest.raises(Corruption, match="settings.json: no JSON"), open_workspace(tmp_path / "head", {}, True):
        pass


def make(width: int) -> tuple[list[torch.nn.Parameter], torch.optim.AdamW]:
    parameters = [torch.nn.Parameter(torch.ones(width)), torch.nn.Parameter(torch.ones(2))]
    return parameters, torch.optim.AdamW(parameters, lr=0.1)


def test_a_checkpoint_brings_everything_back(tmp_path: Path) -> None:
    parameters, optimizer = make(3)
    (parameters[0].sum() * 2).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    with torch.random.fork_rng():
        save_checkpoint(tmp_path / "c", parameters, optimizer, random_state(CPU), {"step": 7})
        expected = torch.rand(3)
        others, other_optimizer = make(3)
        assert load_checkpoint(tmp_path / "c", others, other_optimizer, CPU) == {"step": 7}
        assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(one, other) for one, other in zip(parameters, others, strict=True))
    state = other_optimizer.state_dict()["state"]
    assert list(state) == [0]  # the second has had no gradient yet
    assert all(torch.equal(state[0][name], each) for name, each in optimizer.state_dict()["state"][0].items())
    assert list(tmp_path.iterdir()) == [tmp_path / "c"]


@pytest.mark.parametrize("change", ["width", "fewer", "no checkpoint"])
def test_a_checkpoint_of_another_head_is_refused(tmp_path: Path, change: str) -> None:
    parameters, optimizer = make(3)
    save_checkpoint(tmp_path / "c", parameters, optimizer, random_state(CPU), {})
    others, other_optimizer = make(4 if change == "width" else 3)
    if change == "fewer":
        others.append(torch.nn.Parameter(torch.ones(1)))
    if change == "no checkpoint":
        (tmp_path / "c").write_bytes(b"")
    with pytest.raises(Corruption, match="checkpoint .*c: cannot be used"):
        load_checkpoint(tmp_path / "c", others, other_optimizer, CPU)


def test_a_checkpoint_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    parameters, optimizer = make(3)
    with pytest.raises(ResourceExhausted, match="cannot be written .*; free disk space and go on with --resume"):
        save_checkpoint(tmp_path / "none" / "c", parameters, optimizer, random_state(CPU), {})
