"""Reads recordings from files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from suffolk.build_index.input_file import MAGIC_BYTES, InputFile, find_packing, read_start
from suffolk.build_index.read_lines import read_lines
from suffolk.build_index.records import is_recording
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, SuffolkError
from suffolk.serving.decoding.replay.logs import LogReader
from suffolk.serving.decoding.replay.recording import Recording


def read_recordings(paths: Sequence[Path], logs: LogReader | None = None) -> list[Recording]:
    """All recordings of the files (JSON lines, plain or compressed), in order.

    Args:
        logs: converts lines that ``--record`` did not write. None: these lines raise an error.

    Raises:
        NotFound: a file cannot be read.
        InvalidArgument: a file has no recordings, a line is not a recording, or the recordings come from different
            models.
        Corruption: a line is not JSON, or a compressed file is damaged.
        Unsupported: a line has another format version.
    """
    found: list[Recording] = []
    for path in paths:
        before, lines = len(found), 0
        for place, line in _lines(path):
            lines += 1
            for recording in _parse(place, line, logs):
                found.append(recording)
                _require_same_model(place, found[0], recording)
        if not lines:
            raise InvalidArgument(f"recording {path}: it is empty; --record adds a line for every finished text")
        if logs is not None and len(found) == before:
            reasons = ", ".join(f"{number} {reason}" for reason, number in logs.left_out.most_common(3))
            raise InvalidArgument(f"recording {path}: no answer to replay ({reasons}); name a log with whole responses")
    return found


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Non-blank lines, each with its file and line number for messages."""
    if path.is_dir():
        raise NotFound(f"recording {path}: it is a folder; name the files in it")
    try:
        file = InputFile(str(path), "lines", find_packing(read_start(str(path), MAGIC_BYTES)), 0, 0, True)
        for block, _ in read_lines(file):
            for number, line in enumerate(block.data.split(b"\n"), block.first_line):
                if line.strip():
                    yield f"recording {path} line {number}", line
    except OSError as error:
        raise NotFound(
            f"recording {path}: cannot be read ({error.strerror}); name a file that --record has written"
        ) from error
    except Corruption as error:
        raise Corruption(f"recording {path}: {error}") from error


def _parse(place: str, line: bytes, logs: LogReader | None) -> list[Recording]:
    try:
        row = json.loads(line)
        if logs is None or is_recording(row):
            return [Recording.from_dict(row)]
        return list(logs.read(row, place))
    except SuffolkError as error:
        text = str(error)
        raise type(error)(text if text.startswith(place) else f"{place}: {text}") from error
    except (ValueError, RecursionError) as error:
        raise Corruption(f"{place}: not JSON ({error}); remove the line, or record again") from error


def _require_same_model(place: str, first: Recording, other: Recording) -> None:
    for name in ("vocab_size", "tokenizer"):
        expected, found = getattr(first, name), getattr(other, name)
        if expected != found:
            raise InvalidArgument(
                f"{place}: field {name} is {found!r}, but {expected!r} in the first recording; replay one model at a time"
            )
