"""Encodes a block of a corpus as tokens with separators. Runs in the worker processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from suffolk.build_index.block import Lines, NamedOrigin, Payload, Records, TokenRun
from suffolk.build_index.documents import parse_documents
from suffolk.build_index.encoder import Encoder
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.proof import load_fast
from suffolk.build_index.records import RecordRules
from suffolk.build_index.skipped import BuildCounts, Skipped
from suffolk.datastore.documents import NO_METADATA
from suffolk.datastore.errors import Field, InvalidArgument, Unsupported
from suffolk.datastore.segment import separator, token_dtype


@dataclass(frozen=True, slots=True)
class EncodeSetup:
    """The settings of a block encoder, sent once to each worker. ``fast``: whether to tokenize with Kitoken."""

    options: BuildOptions
    tokenizer_json: str | None
    fast: bool
    vocab_size: int
    rules: RecordRules = RecordRules()


@dataclass(slots=True)
class EncodedBlock:
    """The tokens of a block, every document followed by a separator.

    Attributes:
        tokens: uint16 or uint32 [n], separators included.
        origins: the source and metadata of each document; documents without tokens are left out.
        counts: the totals of the block.
        left_out: records that yield no document.
    """

    tokens: npt.NDArray[Any]
    origins: list[NamedOrigin]
    counts: BuildCounts
    left_out: list[Skipped] = field(default_factory=list)


class BlockEncoder:
    """Encodes blocks with one ``EncodeSetup``. Not thread-safe.

    Raises:
        Unsupported: the setup requests Kitoken, but Kitoken cannot read the tokenizer.
    """

    def __init__(self, setup: EncodeSetup) -> None:
        self._options = setup.options
        self._rules = setup.rules
        self._vocab_size = setup.vocab_size
        self._dtype = token_dtype(setup.vocab_size)
        self._encoder = _make_encoder(setup.tokenizer_json, setup.fast) if setup.tokenizer_json else None

    def encode(self, payload: Payload) -> EncodedBlock:
        """The tokens of a block.

        Raises:
            InvalidArgument: a line, field or id is wrong, or text is read without a tokenizer; the message names the place.
            Unsupported: the tokenizer cannot encode a text.
        """
        if isinstance(payload, TokenRun):
            return self._encode_run(payload)
        documents = parse_documents(payload, self._options, self._rules)
        if self._encoder is None and any(documents.texts):
            path = payload.path if isinstance(payload, Lines | Records) else payload.documents[0][0]
            raise InvalidArgument(f"corpus {path}: holds text, and no tokenizer is given; name one with --tokenizer")
        encoded, counts = [list[int]() for _ in documents.texts], BuildCounts()
        if self._encoder is not None:
            encoded, counts = self._encoder.encode(documents.texts, seed=documents.text_bytes)
        for index, ids in documents.recorded.items():
            encoded[index] = ids
        counts.text_bytes, counts.replaced = documents.text_bytes, documents.replaced
        counts.left_out = len(documents.left_out)
        origins = [origin for origin, ids in zip(documents.origins, encoded, strict=True) if ids]
        return _block(self._join(encoded), origins, counts, documents.left_out)

    def _join(self, documents: list[list[int]]) -> npt.NDArray[Any]:
        end = separator(self._dtype)
        tokens = np.empty(sum(len(ids) + 1 for ids in documents if ids), self._dtype)
        place = 0
        for ids in documents:
            if ids:
                tokens[place : place + len(ids)] = ids
                tokens[place + len(ids)] = end
                place += len(ids) + 1
        return tokens

    def _encode_run(self, run: TokenRun) -> EncodedBlock:
        ids = np.asarray(run.ids)
        end = self._options.end_of_document
        ends = np.zeros(len(ids), bool) if end is None else ids == end
        self._check_range(run, ids, ends)
        begins = np.zeros(len(ids) + 1, bool)
        begins[list(run.starts)] = True
        begins[1:] |= ends
        begins[-1] = False
        origins, pieces = [], []
        bounds = np.append(np.flatnonzero(begins), len(ids))
        for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
            document = ids[start : stop - 1 if ends[stop - 1] else stop]
            if len(document):
                origins.append(_origin(run, int(start)))
                pieces += [document.astype(self._dtype), np.array([separator(self._dtype)], self._dtype)]
        tokens = np.concatenate(pieces) if pieces else np.empty(0, self._dtype)
        return _block(tokens, origins, BuildCounts(text_bytes=ids.nbytes))

    def _check_range(self, run: TokenRun, ids: npt.NDArray[Any], ends: npt.NDArray[np.bool_]) -> None:
        bad = ((ids < 0) | (ids >= self._vocab_size)) & ~ends
        if bad.any():
            place = int(np.argmax(bad))
            where = f"position {run.first + place}" if run.origins is None else f"document {_origin(run, place)[0]}"
            raise InvalidArgument(
                f"corpus {run.path}: id {int(ids[place])} at {where} is not in 0..{self._vocab_size - 1}, the "
                "vocabulary; give the tokenizer, --vocab-size or --token-format that the corpus was made with"
            )


def _block(
    tokens: npt.NDArray[Any], origins: list[NamedOrigin], counts: BuildCounts, left_out: Sequence[Skipped] = ()
) -> EncodedBlock:
    counts.documents = len(origins)
    counts.described = dict(Counter(name for _, metadata in origins for name in metadata))
    counts.tokens = len(tokens) - len(origins)
    return EncodedBlock(tokens, origins, counts, list(left_out))


def _origin(run: TokenRun, start: int) -> NamedOrigin:
    if run.origins is None:
        return f"{run.path}@{run.first + start}", NO_METADATA
    return run.origins[int(np.searchsorted(run.starts, start, side="right")) - 1]


def _make_encoder(tokenizer_json: str, wants_fast: bool) -> Encoder:
    tokenizer = Tokenizer.from_str(tokenizer_json)
    if not wants_fast:
        return Encoder(tokenizer, None)
    fast = load_fast(tokenizer)
    if isinstance(fast, str):
        raise Unsupported(Field("tokenizer"), f": {fast}; build with --tokenization exact")
    return Encoder(tokenizer, fast)
