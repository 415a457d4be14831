"""Encodes rows of a corpus as documents."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.drafters.training.conversation import Rendered, render
from suffolk.serving.decoding.drafters.training.rows import Row
from suffolk.serving.decoding.engine.loop.prompt import encode_text
from suffolk.serving.decoding.engine.model.target import Target


@dataclass(frozen=True, slots=True)
class TrainingDocument:
    """A text as tokens.

    Attributes:
        tokens: int32[n].
        counted: bool[n], whether the loss of each token counts.
        key: the SHA-256 of the document's row, 32 bytes.
    """

    tokens: npt.NDArray[np.int32]
    counted: npt.NDArray[np.bool_]
    key: bytes


def encode_row(target: Target, row: Row) -> list[TrainingDocument]:
    """Encode a row. In a text all tokens count. In a conversation only the answers count (``render``).

    Raises:
        InvalidArgument: a conversation has no answer. The message is the reason only, without the row.
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


def make_document(target: Target, tokens: Any, counted: npt.NDArray[np.bool_], key: bytes) -> TrainingDocument:
    """A document of ``tokens``. Raises Unsupported if a token is outside the model's vocabulary."""
    ids = np.asarray(tokens, np.int32)
    if len(ids) and int(ids.max()) >= target.vocab_size:
        raise Unsupported(
            f"model {target.name}: its tokenizer gives the id {int(ids.max())}, and its vocabulary has {target.vocab_size}; "
            "use the tokenizer that belongs to it"
        )
    return TrainingDocument(ids, counted, key)


def key_of(content: str) -> bytes:
    """The SHA-256 of ``content``, 32 bytes."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()


def is_held_out(key: bytes, share: float) -> bool:
    """Whether the document of ``key`` is held out from training. ``share``: the share of all documents that are held out."""
    return int.from_bytes(key[:8], "big") < share * 2**64


def _encode_rendered(target: Target, rendered: Rendered) -> tuple[list[int], npt.NDArray[np.bool_]]:
    """The tokens, and whether each is part of an answer. An answer ends with its end token."""
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
