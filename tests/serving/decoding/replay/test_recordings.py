"""Tests files of recordings: round trips, complete lines, and errors with file and line."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from suffolk.benchmarks.replay.report import ALL, head_lines, result_lines
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, PermissionDenied, SuffolkError, Unsupported
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.read import read_recordings
from suffolk.serving.decoding.replay.recorder import Recorder
from suffolk.serving.decoding.replay.recording import COUNTS, Recording
from suffolk.serving.decoding.replay.summary import DEPTHS
from tests.support.tiny_models import VOCAB, tiny_model

SETTINGS = SamplingSettings(
    9,
    0.5,
    top_k=7,
    top_p=0.9,
    seed=2**62,
    stop=("a\nb", "ü"),
    bad_words=((1, 2), (3,)),
    logprobs=2,
    verification="typical",
)


def recording(**changes: Any) -> Recording:
    own: dict[str, Any] = {
        "prompt": np.array([1, 2, 3], np.int32), "generated": np.array([4, 96], np.int32), "settings": SETTINGS,
        "vocab_size": VOCAB, "model": "tiny", "tokenizer": "ab" * 32, "group": "chat",
        "finish": "eos", "drafter": "hybrid",
        "max_nodes": 12, "counts": dict.fromkeys(COUNTS, 1.5),
    }  # fmt: skip
    return Recording(**(own | changes))


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def finished() -> Generation:
    request = Request(1, Target.wrap(tiny_model()), [1, 2, 3], SamplingSettings(4))
    request.commit([4, 5, 6, 7], [0, 0, 0, 0])
    return Generation(request, lambda generation: None)


def test_recordings_round_trip(tmp_path: Path) -> None:
    row = recording().to_dict()
    path = write(tmp_path / "a.jsonl", row, "", row)
    path.write_text(path.read_text().replace('""\n', "\n"))
    (tmp_path / "b.jsonl.zst").write_bytes(
        zstandard.compress(path.read_bytes()) + zstandard.compress(path.read_bytes())
    )
    found = read_recordings([path, tmp_path / "b.jsonl.zst"])
    assert len(found) == 6
    for each in found:
        for field in fields(Recording):
            assert np.array_equal(getattr(each, field.name), getattr(recording(), field.name)), field.name
        assert each.prompt.dtype == each.generated.dtype == np.int32


def test_control_characters_in_recordings_are_escaped() -> None:
    """Names in recordings may have control characters, because clients of a worker choose these names."""
    odd = replace(recording(), model="m\x1b[2J", drafter="d\n", group="g\x07")
    row = {
        "drafter": "hybrid",
        "nodes": 4,
        "group": odd.group,
        "texts": 1,
        "mean_generated_length": 1.0,
        "nodes_per_pass": 1.0,
    }
    row |= {"acceptance_by_depth": [0.0] * DEPTHS, "accepted_by_source": {}, "draft_failures": 0, "tokens": 3}
    lines = [*head_lines([Path("a")], [odd], ""), *result_lines([row, row | {"group": ALL}])]
    assert all(line.replace("\n", "").isprintable() for line in lines)
    assert "g\\x07" in "".join(lines)


def broken(name: str, value: object) -> dict[str, Any]:
    return recording().to_dict() | {name: value}


SETTINGS_ROW = recording().to_dict()["settings"]
BAD: dict[str, tuple[object, type[SuffolkError], str]] = {
    "no object": ([1], InvalidArgument, "not a recording"),
    "something else": ({"prompt": "hello"}, InvalidArgument, "field 'recording' is missing"),
    "another format": (broken("recording", 2), Unsupported, "field recording is 2, this version reads 1"),
    "an unknown field": (broken("colour", 1), InvalidArgument, "field colour is unknown"),
    "a text for ids": (broken("prompt", "abc"), InvalidArgument, "field prompt is 'abc'"),
    "no tokens": (broken("generated", []), InvalidArgument, "field generated has 0 tokens"),
    "an id too high": (broken("generated", [1, VOCAB]), InvalidArgument, f"field generated has {VOCAB}; .* 0..{VOCAB - 1}"),
    "a negative id": (broken("prompt", [-1]), InvalidArgument, "field prompt has -1"),
    "a fraction": (broken("prompt", [1.0]), InvalidArgument, "field prompt has 1.0"),
    "a truth for an id": (broken("prompt", [True]), InvalidArgument, "field prompt has True"),
    "more tokens than asked for": (broken("generated", [1] * 10), InvalidArgument, "10 tokens, but settings.max_new_tokens is 9"),
    "an odd end": (broken("finish", "cancelled"), InvalidArgument, "field finish is 'cancelled'"),
    "an odd name": (broken("group", 3), InvalidArgument, "field group is 3, of type int; it must be a text"),
    "no vocabulary": (broken("vocab_size", 0), InvalidArgument, "field vocab_size is 0"),
    "no settings": (broken("settings", None), InvalidArgument, "field settings must have exactly"),
    "a bad temperature": (
        broken("settings", SETTINGS_ROW | {"temperature": -1}), InvalidArgument, "field settings: temperature is -1"
    ),
    "a count that is none": (
        broken("counts", dict.fromkeys(COUNTS, 1) | {"steps": "x"}), InvalidArgument, "field counts.steps is 'x'"
    ),
    "another model's": (broken("vocab_size", VOCAB + 1), InvalidArgument, "replay one model at a time"),
    "another tokenizer's": (broken("tokenizer", "cd"), InvalidArgument, "field tokenizer is 'cd'"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_errors_name_file_line_and_field(what: str, tmp_path: Path) -> None:
    row, error, words = BAD[what]
    path = write(tmp_path / "a.jsonl", recording().to_dict(), row)
    with pytest.raises(error, match=rf"recording {path} line 2: .*{words}"):
        read_recordings([path])


def test_files_without_recordings_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with pytest.raises(NotFound, match=f"recording {path}: cannot be read"):
        read_recordings([path])
    with pytest.raises(NotFound, match="it is a folder"):
        read_recordings([tmp_path])
    path.write_text("\n\n")
    with pytest.raises(InvalidArgument, match=f"recording {path}: it is empty"):
        read_recordings([path])
    path.write_text(json.dumps(recording().to_dict())[:-20])
    with pytest.raises(Corruption, match="line 1: not JSON"):
        read_recordings([path])
    packed = tmp_path / "b.jsonl.zst"
    packed.write_bytes(zstandard.compress(b"x" * 100)[:-3])
    with pytest.raises(
        Corruption, match="^recording [^ ]*b.jsonl.zst: its compressed stream is broken .the last frame"
    ):
        read_recordings([packed])


def test_threads_add_whole_lines(tmp_path: Path, finished: Generation) -> None:
    path = tmp_path / "a.jsonl"
    recorders = [Recorder(path, VOCAB, "tiny"), Recorder(path, VOCAB, "tiny")]  # as of two processes

    def add(recorder: Recorder) -> None:
        for _ in range(25):
            assert recorder.add(finished, "g" * 5000)

    threads = [threading.Thread(target=add, args=(recorders[number % 2],)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for recorder in recorders:
        recorder.close()
        recorder.close()
    found = read_recordings([path])
    assert len(found) == 100
    assert {tuple(each.generated.tolist()) for each in found} == {(4, 5, 6, 7)}
    assert path.stat().st_mode & 0o777 == 0o600  # users' texts


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, finished: Generation, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "a.jsonl", os.write

    def fill(file: int, data: bytes) -> int:
        if len(data) < 50:
            raise OSError(28, "No space left on device")
        return write(file, data[: len(data) // 2])

    with Recorder(path, VOCAB) as recorder:
        assert recorder.add(finished)
        before = path.read_bytes()
        monkeypatch.setattr(os, "write", fill)
        with pytest.raises(PermissionDenied, match="No space left on device"):
            recorder.add(finished)
        monkeypatch.setattr(os, "write", write)
        assert path.read_bytes() == before
        assert recorder.add(finished)
    assert len(read_recordings([path])) == 2


def test_lines_are_not_added_to_other_files(tmp_path: Path, finished: Generation) -> None:
    other = tmp_path / "notes.txt"
    cases: list[tuple[str, type[SuffolkError], str]] = [
        ("hello\n", InvalidArgument, "holds something other"),
        (json.dumps(recording().to_dict())[:-9], InvalidArgument, "its last line is incomplete"),
    ]
    for content, error, words in cases:
        other.write_text(content)
        with pytest.raises(error, match=words):
            Recorder(other, VOCAB)
        assert other.read_text() == content
    with pytest.raises(InvalidArgument, match="compressed"):
        Recorder(tmp_path / "a.jsonl.zst", VOCAB)
    with pytest.raises(NotFound, match="no such folder"):
        Recorder(tmp_path / "new" / "a.jsonl", VOCAB)
    with pytest.raises(PermissionDenied):
        Recorder(tmp_path, VOCAB)
    assert not (tmp_path / "a.jsonl.zst").exists()
    with Recorder(write(tmp_path / "old.jsonl"), VOCAB, "tiny") as recorder:
        recorder.add(finished)
    with Recorder(tmp_path / "old.jsonl", VOCAB, "tiny") as recorder:
        recorder.add(finished)
    assert len(read_recordings([tmp_path / "old.jsonl"])) == 2


def test_a_running_generation_is_not_recorded(finished: Generation) -> None:
    request = Request(1, Target.wrap(tiny_model()), [1, 2, 3], SamplingSettings(4))
    make: Callable[[], Recording] = lambda: Recording.of(Generation(request, lambda generation: None), VOCAB)  # noqa: E731
    with pytest.raises(InvalidArgument, match="a generation that is running cannot be recorded"):
        make()
    assert Recording.of(finished, VOCAB).finish == "length"
