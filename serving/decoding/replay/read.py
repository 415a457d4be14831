"""Reads recordings. Also reads logs of OpenAI's API and conversations, and tokenizes them as for a given model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.build_index.chat_template import find_chat_template
from suffolk.build_index.conversation import Conversation, Message, find_conversation
from suffolk.build_index.exchange import Exchange, ExchangeReply, find_exchange
from suffolk.build_index.input_file import MAGIC_BYTES, InputFile, find_packing, read_chunks, read_start
from suffolk.build_index.read_lines import read_lines
from suffolk.build_index.records import is_recording
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, SuffolkError
from suffolk.datastore.hub import model_file
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer, vocab_size
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.recording import Recording

ASSISTANT = "assistant"
LENGTH = "length"


class LogReader:
    """Converts records of a log to recordings. Not thread-safe.

    Attributes:
        left_out: requests without a recording, by reason.
        first_left_out: file and line of the first omitted request.
    """

    def __init__(self, model: str | Path) -> None:
        """``model``: the folder or hub name of a tokenizer and its chat template.

        Raises the errors of ``load_tokenizer``.
        """
        self._tokenizer = load_tokenizer(model)
        self._template = find_chat_template(model)
        self._fingerprint = fingerprint(self._tokenizer)
        self._vocab_size = max(vocab_size(self._tokenizer), _config_vocab_size(model))
        end = None if self._template is None else self._template.tokens.get("eos_token")
        self._end = None if end is None else self._tokenizer.token_to_id(end)
        self.left_out: Counter[str] = Counter()
        self.first_left_out = ""

    def read(self, record: Any, place: str) -> Iterator[Recording]:
        """One recording for each choice of a response, or for each answer in a conversation.

        Raises:
            InvalidArgument: the record has another form, or is a conversation and the tokenizer has no chat template.
        """
        if (exchange := find_exchange(record, place)) is not None:
            exchanges: Sequence[Exchange] = [exchange]
        elif (conversation := find_conversation(record, place)) is not None:
            exchanges = _turns(conversation)
        else:
            fields = ", ".join(sorted(record)[:12]) if isinstance(record, dict) else f"a JSON {type(record).__name__}"
            raise InvalidArgument(
                f"{place}: no recording, no request with its response, and no conversation; the line has {fields or 'no fields'}"
            )
        if not any(each.answers for each in exchanges):
            self._leave_out("without an answer", place)
        for each in exchanges:
            for answer in each.answers:
                yield from self._record(each, answer, place)

    def _record(self, exchange: Exchange, answer: ExchangeReply, place: str) -> Iterator[Recording]:
        encoded = self._encode(exchange, answer, place)
        if isinstance(encoded, str):
            self._leave_out(encoded, place)
            return
        prompt, generated = encoded
        if not prompt or not generated:
            self._leave_out("with an empty prompt or answer", place)
            return
        yield Recording(
            np.array(prompt, np.int32),
            np.array(generated, np.int32),
            SamplingSettings(max_new_tokens=max(len(generated), exchange.max_tokens or 0)),
            self._vocab_size,
            exchange.model,
            self._fingerprint,
            finish="length" if answer.finish == LENGTH else "stop",
            drafter="log",
        )

    def _encode(self, exchange: Exchange, answer: ExchangeReply, place: str) -> tuple[list[int], list[int]] | str:
        """The tokens of the prompt and of the answer up to its end token, or the reason why the template fails."""
        if isinstance(exchange.prompt, str):
            text = answer.content if isinstance(answer.content, str) else str(answer.content["content"])
            return list(self._tokenizer.encode(exchange.prompt).ids), self._ids(text)
        if self._template is None:
            raise InvalidArgument(
                f"{place}: a conversation, and the tokenizer has no chat template; give a model folder that has one"
            )
        messages, tools = exchange.prompt.messages, exchange.prompt.tools
        content = answer.content
        message: Message = {"role": ASSISTANT, "content": content} if isinstance(content, str) else content
        try:
            prompt = self._template.render(messages, tools, asking=True)
            whole = self._template.render((*messages, message), tools)
        except InvalidArgument as error:
            return f"because {error}"
        # Templates of reasoning models may render an answer differently from the generated text.
        text = whole.removeprefix(prompt) if whole.startswith(prompt) else str(message["content"])
        ids = self._ids(text)
        if self._end in ids:
            end = ids.index(self._end)
            ids = ids[: end if answer.finish == LENGTH else end + 1]
        return self._ids(prompt), ids

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _leave_out(self, reason: str, place: str) -> None:
        self.first_left_out = self.first_left_out or place
        self.left_out[reason] += 1


def _turns(conversation: Conversation) -> Sequence[Exchange]:
    """Each answer of a conversation, with the preceding messages."""
    messages, tools = conversation.messages, conversation.tools
    return [
        Exchange(Conversation(messages[:number], tools), (ExchangeReply(message, "stop"),))
        for number, message in enumerate(messages)
        if number and message["role"] == ASSISTANT
    ]


def _config_vocab_size(model: str | Path) -> int:
    """Vocabulary size of the model in the tokenizer's folder; 0 if unknown. A model may have more ids than its tokenizer."""
    path = model_file(model, "config.json")
    try:
        config = {} if path is None else json.loads(path.read_text(encoding="utf-8-sig"))
        size = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
    except (ValueError, AttributeError):
        return 0
    return size if isinstance(size, int) else 0


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
        for block, _ in read_lines(file.path, read_chunks(file)):
            for number, line in enumerate(block.data.split(b"\n"), block.first_line):
                if line.strip():
                    yield f"recording {path} line {number}", line
    except OSError as error:
        raise NotFound(
            f"recording {path}: cannot be read ({error.strerror}); name a file that --record has written"
        ) from error
    except Corruption as error:
        reason = error.__cause__ or error
        raise Corruption(
            f"recording {path}: its compressed stream is broken ({reason}); copy the file again"
        ) from error


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
