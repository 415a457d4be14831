"""Encodes rows of a corpus as documents: tokens, and which of them count."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import Unsupported
from suffolk.serving.drafters.training.conversation import Rendered, render
from suffolk.serving.drafters.training.rows import Row
from suffolk.serving.engine.loop.prompt import encode_text
from suffolk.serving.engine.model.target import Target


@dataclass(frozen=True, slots=True)
class Document:
    """Tokens int32[n] and whether each counts, bool[n]; ``key``: the SHA-256 of the row that it comes from, 32 bytes."""

    tokens: npt.NDArray[np.int32]
    counted: npt.NDArray[np.bool_]
    key: bytes


def encode_row(target: Target, row: Row) -> list[Document]:
    """Encode a text as one document whose tokens all count, a conversation as those of ``render``, whose answers count.

    Raises:
        InvalidArgument: a conversation without an answer; the message is the reason, without the row.
        Unsupported: the tokenizer gives ids outside the model's vocabulary, or no offsets.
    """
    key = key_of(row.content)
    if row.text is not None:
        tokens = encode_text(target, row.text)
        return [make_document(target, tokens, np.ones(len(tokens), np.bool_), key)]
    return [
        make_document(target, *_encode_rendered(target, rendered), key)
        for rendered in render(target.tokenizer, row.messages or ())
    ]


def make_document(target: Target, tokens: Any, counted: npt.NDArray[np.bool_], key: bytes) -> Document:
    """A document of ``tokens``. Raises Unsupported: one is outside the model's vocabulary."""
    ids = np.asarray(tokens, np.int32)
    if len(ids) and int(ids.max()) >= target.vocab_size:
        raise Unsupported(
            f"model {target.name}: its tokenizer gives the id {int(ids.max())}, and its vocabulary has {target.vocab_size}; "
            "use the tokenizer that belongs to it"
        )
    return Document(ids, counted, key)


def key_of(content: str) -> bytes:
    """The SHA-256 of ``content``, 32 bytes."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()


def is_held_out(key: bytes, share: float) -> bool:
    """Whether the document of ``key`` is among the ``share`` held out."""
    return int.from_bytes(key[:8], "big") < share * 2**64


def _encode_rendered(target: Target, rendered: Rendered) -> tuple[list[int], npt.NDArray[np.bool_]]:
    """Tokens, and whether each begins inside an answer, up to the answer's end token."""
    try:
        encoded = target.tokenizer(rendered.text, add_special_tokens=False, return_offsets_mapping=True)
    except NotImplementedError as error:
        raise Unsupported(
            f"model {target.name}: its tokenizer gives no character offsets; save it as tokenizer.json"
        ) from error
    tokens = list(encoded["input_ids"])
    begins = np.array([begin for begin, _ in encoded["offset_mapping"]], np.int64)
    counted = np.zeros(len(tokens), np.bool_)
    for begin, end in rendered.answers:
        inside = np.flatnonzero((begins >= begin) & (begins < end))
        ends = [place for place in inside.tolist() if tokens[place] in target.eos_ids]
        counted[inside[inside <= ends[0]] if ends else inside] = True
    return tokens, counted
