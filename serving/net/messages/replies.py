"""Packs occurrences of a pattern and tokenizers (draft.proto), and validates received ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import zstandard
from tokenizers import Tokenizer

from suffolk.datastore import limits
from suffolk.datastore.context_query import Tokens
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.errors import Corruption, Field, InvalidArgument, ResourceExhausted
from suffolk.datastore.tokenizer import fingerprint, parse_tokenizer
from suffolk.serving.net.messages.documents import dump_metadata, load_metadata
from suffolk.serving.net.proto import draft_pb2
from suffolk.serving.net.tokens import TOKEN, unpack_tokens


def pack_occurrences(places: Sequence[Occurrence]) -> draft_pb2.OccurrencesReply:
    return draft_pb2.OccurrencesReply(
        occurrences=[
            draft_pb2.Occurrence(
                datastore=place.datastore,
                segment=place.segment,
                document=place.document,
                offset=place.offset,
                id=place.source or "",
                metadata_json=dump_metadata(place.metadata),
                tokens=place.tokens.astype(TOKEN).tobytes(),
                before=place.before.astype(TOKEN).tobytes(),
            )
            for place in places
        ]
    )


def unpack_occurrences(
    reply: draft_pb2.OccurrencesReply, pattern: Tokens, limit: int, names: Collection[str], vocab_size: int
) -> list[Occurrence]:
    """The occurrences of a reply.

    Raises:
        InvalidArgument: there are more than ``limit``, or one is malformed, is not of ``pattern``, or is in none of the datastores
            ``names``.
    """
    if len(reply.occurrences) > limit:
        raise InvalidArgument(Field("occurrences"), f": {len(reply.occurrences)}; the query allows {limit}")
    return [
        _unpack(message, f"occurrences[{index}]", pattern, names, vocab_size)
        for index, message in enumerate(reply.occurrences)
    ]


def _unpack(
    message: draft_pb2.Occurrence, field: str, pattern: Tokens, names: Collection[str], vocab_size: int
) -> Occurrence:
    if message.datastore not in names:
        raise InvalidArgument(Field(field), f" is in datastore {message.datastore!r}, which was not searched")
    tokens, before = unpack_tokens(message.tokens, f"{field}.tokens"), unpack_tokens(message.before, f"{field}.before")
    for ids in (tokens, before):
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
            raise InvalidArgument(Field(field), f" has a token id outside the vocabulary of {vocab_size}")
    if tokens[: len(pattern)].tolist() != list(pattern):
        raise InvalidArgument(Field(field), ".tokens does not begin with the pattern")
    return Occurrence(
        message.segment,
        message.document,
        message.offset,
        message.id or None,
        load_metadata(message.metadata_json, f"{field}.metadata_json"),
        tokens.astype(np.uint32),
        before.astype(np.uint32),
        message.datastore,
    )


def pack_tokenizer(tokenizer: Tokenizer) -> bytes:
    """The tokenizer.json as one zstd frame. Raises ResourceExhausted if it is larger than a reply may be."""
    text = tokenizer.to_str().encode()
    frame = zstandard.ZstdCompressor(level=9).compress(text)
    if len(text) > limits.MAX_TOKENIZER_BYTES or len(frame) > limits.MAX_REPLY_BYTES - 1024:
        raise ResourceExhausted(
            f"the tokenizer has {len(text)} bytes, {len(frame)} compressed; the limits are {limits.MAX_TOKENIZER_BYTES} and "
            f"{limits.MAX_REPLY_BYTES - 1024}; load it from its own file and pass token ids"
        )
    return frame


def unpack_tokenizer(frame: bytes, expected: str) -> Tokenizer:
    """The inverse of ``pack_tokenizer``.

    Args:
        expected: fingerprint of the datastore's tokenizer.

    Raises:
        InvalidArgument: the frame is damaged, too large when decompressed, or holds another tokenizer.
    """
    try:
        if not 0 <= zstandard.frame_content_size(frame) <= limits.MAX_TOKENIZER_BYTES:
            raise InvalidArgument(
                Field("tokenizer"), f": its frame states no size up to {limits.MAX_TOKENIZER_BYTES} bytes"
            )
        text = zstandard.ZstdDecompressor().decompress(frame, max_output_size=limits.MAX_TOKENIZER_BYTES)
        tokenizer = parse_tokenizer(text)
    except (zstandard.ZstdError, Corruption) as error:
        raise InvalidArgument(Field("tokenizer"), f": {error}") from None
    if (found := fingerprint(tokenizer)) != expected:
        raise InvalidArgument(Field("tokenizer"), f": its fingerprint is {found}, not {expected} as in the datastore")
    return tokenizer
