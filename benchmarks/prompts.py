"""Reads prompts from JSONL files, and encodes them for one model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.datastore.checks import check_choice, check_range
from suffolk.datastore.errors import InvalidArgument, NotFound

STYLES = ("chat", "prefill", "both")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        name: the name of its row (``row_name``).
        group: name in reports: the row's set or the file's name, followed by the style if the row has a beginning of the answer.
        messages: role and content of each message, for the model's chat template; empty for plain text.
        text: the beginning of the answer, which follows the messages. Without messages, the whole prompt.
    """

    name: str
    group: str
    messages: tuple[dict[str, str], ...]
    text: str = ""


def load_prompts(
    paths: Sequence[Path], style: str, limit: int | None, seed: int, noun: str = "prompts"
) -> list[Prompt]:
    """Load the prompts of files, and of all .jsonl files in folders.

    With ``limit``, each file gives a random sample of at most ``limit`` rows, in the file's order.

    A row has ``messages`` or a ``prompt`` (or ``text``), and may have ``id``, ``set`` and ``prefill``. With style
    "prefill" the answer begins with the row's prefill. With "both", rows with a prefill run in both styles.
    ``noun`` names the rows in errors.

    Raises:
        NotFound: a file is missing, or a folder has no .jsonl file.
        InvalidArgument: a file is not UTF-8, a row is not an object, a row has neither messages nor a prompt, a message
            lacks its role or content, or a prompt or content is no text.
    """
    check_choice("style", style, STYLES)
    if limit is not None:
        check_range("limit", limit, 1)
    prompts: list[Prompt] = []
    for path in prompt_files(paths, noun):
        rows = rows_in(path, noun)
        if limit is not None and limit < len(rows):
            picked = np.sort(np.random.default_rng(seed).choice(len(rows), limit, replace=False))
            rows = [rows[place] for place in picked]
        for number, row in rows:
            prompts += _prompts(row, path, number, style)
    if not prompts:
        raise InvalidArgument(f"no {noun} in {', '.join(map(str, paths))}; give .jsonl files with one object a line")
    return prompts


def row_name(row: dict[str, Any], path: Path, number: int) -> str:
    """Return the name of a row: its ``id``, else its ``task_id``, else its file and line."""
    return str(row.get("id", row.get("task_id", f"{path.name}:{number}")))


def messages_of(row: dict[str, Any], place: str) -> tuple[dict[str, str], ...]:
    """Return role and content of a row's ``messages``; empty if it has none.

    Raises InvalidArgument with the ``place`` of a malformed message.
    """
    try:
        found = tuple({"role": each["role"], "content": each["content"]} for each in row.get("messages", ()))
    except (KeyError, TypeError) as error:
        raise InvalidArgument(f"{place}: 'messages' must be a list of objects with 'role' and 'content'") from error
    for number, message in enumerate(found):
        for name, value in message.items():
            _text(value, place, f"messages[{number}].{name}")
    return found


def encode_prompt(prompt: Prompt, tokenizer: Any, model: str) -> list[int]:
    """Encode the prompt: the messages in the model's chat template, then the text.

    Raises:
        InvalidArgument: there are messages, and the model has no chat template.
    """
    if not prompt.messages:
        return list(tokenizer(prompt.text)["input_ids"])
    if not getattr(tokenizer, "chat_template", None):
        raise InvalidArgument(
            f"model {model} has no chat template; give prompts as rows with 'prompt' instead of 'messages'"
        )
    head = tokenizer.apply_chat_template(list(prompt.messages), add_generation_prompt=True, tokenize=False)
    return list(tokenizer(head + prompt.text, add_special_tokens=False)["input_ids"])


def prompt_files(paths: Sequence[Path], noun: str = "prompts") -> list[Path]:
    """The files, and all .jsonl files of folders. Raises the errors of ``load_prompts``."""
    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not found:
            raise NotFound(f"{noun} {path}: the folder has no .jsonl file")
        files += found
    return files


def rows_in(path: Path, noun: str = "prompts") -> list[tuple[int, dict[str, Any]]]:
    """Line number and content of every row of a file. Raises the errors of ``load_prompts``."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NotFound(f"{noun} {path}: {error.strerror}; name a .jsonl file or a folder of them") from error
    rows = []
    for number, line in enumerate(decode_text(path, data).splitlines(), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InvalidArgument(f"{path} line {number}: {error}; give one JSON object a line") from error
            if not isinstance(row, dict):
                raise InvalidArgument(f"{path} line {number}: the row is not an object; give one JSON object a line")
            rows.append((number, row))
    return rows


def decode_text(path: Path, data: bytes) -> str:
    """``data``, the content of ``path``, as text. Raises InvalidArgument: it is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise InvalidArgument(
            f"{path} line {number}: byte {data[error.start]:#04x} is not UTF-8; give a text file in UTF-8"
        ) from error


def _text(value: Any, place: str, field: str) -> str:
    """``value`` of a ``field`` of a row. Raises InvalidArgument: it is no text."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{place}: '{field}' is {value!r:.40}; give a text")
    return value


def _prompts(row: dict[str, Any], path: Path, number: int, style: str) -> list[Prompt]:
    messages = messages_of(row, f"{path} line {number}")
    name, group = row_name(row, path, number), str(row.get("set", path.stem))
    if not messages:
        if "prompt" not in row and "text" not in row:
            raise InvalidArgument(f"{path} line {number}: no 'messages' and no 'prompt'; a row needs one of them")
        field = "prompt" if "prompt" in row else "text"
        return [Prompt(name, group, (), _text(row[field], f"{path} line {number}", field))]
    prefill = row.get("prefill")
    if prefill is None:
        return [Prompt(name, group, messages)]
    text = _text(prefill, f"{path} line {number}", "prefill")
    both = [Prompt(name, f"{group}, chat", messages), Prompt(name, f"{group}, prefill", messages, text)]
    return {"chat": both[:1], "prefill": both[1:], "both": both}[style]
