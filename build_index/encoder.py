"""Tokenizes text with Kitoken (the fast path), or with Hugging Face tokenizers where Kitoken's ids may differ."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence

from kitoken import Kitoken
from tokenizers import Tokenizer

from suffolk.build_index.skipped import BuildCounts
from suffolk.datastore.errors import Field, Unsupported
from suffolk.datastore.hub import short_reason

CONTRACTION = re.compile(r"'(?<=[^\S ]')(?:[sdmt]|ll|ve|re)")
"""A contraction after whitespace other than a space.

GPT-2's pre-tokenizer splits before the contraction's quote. Kitoken's version of this pattern joins whitespace and quote, and
splits after the quote.
"""

CHECKED_SLICES = 4
CHECKED_CHARACTERS = 1500
HF_BATCH = 64


class Encoder:
    """Tokenizes batches of texts as Hugging Face tokenizers do with ``add_special_tokens=False``. Not thread-safe.

    Without ``fast`` it uses Hugging Face tokenizers alone.
    """

    def __init__(self, exact: Tokenizer, fast: Kitoken | None) -> None:
        self._exact = exact
        self._fast = fast
        self._added = added_pattern(token.content for token in exact.get_added_tokens_decoder().values())

    def encode(self, texts: Sequence[str], seed: int) -> tuple[list[list[int]], BuildCounts]:
        """The ids of each of ``texts``, and ``BuildCounts`` of which only ``routed``, ``checked`` and ``differed`` are set.
        Both libraries tokenize some slices of ``texts``. If one differs, all ids are from Hugging Face tokenizers. ``seed``
        selects the slices, so a build can be repeated exactly.
        """
        if self._fast is None:
            return self.encode_exactly(texts), BuildCounts()
        risky = [self.is_risky(text) for text in texts]
        safe = [text for text, is_risky in zip(texts, risky, strict=True) if not is_risky]
        checked, differed = self._check(self._fast, safe, seed)
        if differed:
            return self.encode_exactly(texts), BuildCounts(checked=checked, differed=differed)
        exact = iter(self.encode_exactly([text for text, is_risky in zip(texts, risky, strict=True) if is_risky]))
        ids = [
            next(exact) if is_risky else self._fast.encode(text, True)
            for text, is_risky in zip(texts, risky, strict=True)
        ]
        return ids, BuildCounts(routed=len(texts) - len(safe), checked=checked)

    def is_risky(self, text: str) -> bool:
        """Whether ``text`` holds an added token or a contraction, for which the fast path may give other ids."""
        return self._added.search(text) is not None or CONTRACTION.search(text) is not None

    def encode_exactly(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of Hugging Face tokenizers.

        Raises:
            Unsupported: the tokenizer cannot encode a text.
        """
        ids: list[list[int]] = []
        for start in range(0, len(texts), HF_BATCH):
            batch = list(texts[start : start + HF_BATCH])
            try:
                encodings = self._exact.encode_batch_fast(batch, add_special_tokens=False)
            except Exception as error:  # the library raises plain Exception for every error
                raise Unsupported(
                    Field("tokenizer"),
                    f": it cannot encode the corpus ({short_reason(error)}); give one that has an id "
                    "for every text, such as an unknown token",
                ) from error
            ids.extend(encoding.ids for encoding in encodings)
        return ids

    def _check(self, fast: Kitoken, texts: Sequence[str], seed: int) -> tuple[int, int]:
        """Tokenize slices of ``texts`` with both libraries.

        Returns the number of slices, and how many have different ids.
        """
        if not texts:
            return 0, 0
        chooser = random.Random(seed)
        slices = []
        for text in chooser.choices(texts, k=min(CHECKED_SLICES, len(texts))):
            start = chooser.randrange(max(1, len(text) - CHECKED_CHARACTERS))
            slices.append(text[start : start + CHECKED_CHARACTERS])
        exact = self.encode_exactly(slices)
        return len(slices), sum(fast.encode(text, True) != ids for text, ids in zip(slices, exact, strict=True))


def added_pattern(contents: Iterable[str]) -> re.Pattern[str]:
    """A pattern for the text of any added token that is not whitespace alone.

    This pattern is separate from CONTRACTION, because ``re`` searches several literals ten times faster than several patterns.
    """
    literals = sorted(
        {re.escape(content) for content in contents if content.strip()}, key=lambda item: (-len(item), item)
    )
    return re.compile("|".join(literals) or r"(?!)")
