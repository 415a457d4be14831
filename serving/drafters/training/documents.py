"""Documents to learn from: tokens, and which of them count."""

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
    """A text as one document of which all counts, a conversation as those of ``render``, of which its answers count.

    Raises:
        InvalidArgument: a conversation that nothing can be learnt from; the message is the reason, without the row.
        Unsupported: the tokenizer gives tokens that the model has not, or does not say where in a text they are.
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
    """A document with these tokens. Raises Unsupported: one of them is beyond the model's vocabulary."""
    ids = np.asarray(tokens, np.int32)
    if len(ids) and int(ids.max()) >= target.vocab_size:
        raise Unsupported(
            f"model {target.name}: its tokenizer gives the id {int(ids.max())}, and its vocabulary has {target.vocab_size}; "
            "use the tokenizer that belongs to it"
        )
    return Document(ids, counted, key)


def key_of(content: str) -> bytes:
    """The same for equal contents, and spread evenly over all 32-byte strings."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()


def is_held_out(key: bytes, share: float) -> bool:
    """Whether a document with that key is among the ``share`` that is not trained on."""
    return int.from_bytes(key[:8], "big") < share * 2**64


def _encode_rendered(target: Target, rendered: Rendered) -> tuple[list[int], npt.NDArray[np.bool_]]:
    """Tokens, and whether each begins inside an answer, up to the token with which the model ends it."""
    try:
        encoded = target.tokenizer(rendered.text, add_special_tokens=False, return_offsets_mapping=True)
    except NotImplementedError as error:
        raise Unsupported(
            f"model {target.name}: its tokenizer does not tell which characters a token stands for; save it as tokenizer.json"
        ) from error
    tokens = list(encoded["input_ids"])
    begins = np.array([begin for begin, _ in encoded["offset_mapping"]], np.int64)
    counted = np.zeros(len(tokens), np.bool_)
    for begin, end in rendered.answers:
        inside = np.flatnonzero((begins >= begin) & (begins < end))
        ends = [place for place in inside.tolist() if tokens[place] in target.eos_ids]
        counted[inside[inside <= ends[0]] if ends else inside] = True
    return tokens, counted
