"""Packs a tokenizer as one zstd frame, and validates frames."""

from __future__ import annotations

import zstandard
from tokenizers import Tokenizer

from suffolk.datastore import limits
from suffolk.datastore.errors import Corruption, Field, InvalidArgument, ResourceExhausted
from suffolk.datastore.tokenizer import fingerprint, parse_tokenizer


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
        raise InvalidArgument(
            Field("tokenizer"), f": its fingerprint is {found}, not {expected}, that of the datastore"
        )
    return tokenizer
