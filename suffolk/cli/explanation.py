"""The output of ``--explain``: text marked by source, documents of copied passages, and the use of neural drafters."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from suffolk.build_index.report import count
from suffolk.cli.source_colours import Colours, legend, paint
from suffolk.cli.store_lines import document_id
from suffolk.datastore.draft_tree import RETRIEVED
from suffolk.datastore.errors import PermissionDenied, Unsupported
from suffolk.datastore.files import printable
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.drafters.hybrid.explanation import Explanation
from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.engine.loop.step import Step

BATCH = 256
"""Contexts of one call of a draft service."""
MOST_PASSAGES = 5
MOST_DOCUMENTS = 3
SHORTEST = 3
"""Least number of tokens of a passage. Shorter passages occur in any text."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Generated tokens ``begin`` to ``end`` that occur ``count`` times in a datastore."""

    begin: int
    end: int
    count: int

    @property
    def length(self) -> int:
        return self.end - self.begin


def explain(
    tokenizer: Any, steps: Sequence[Step], stores: Sequence[Retriever], explanation: Explanation, colours: Colours
) -> list[str]:
    """The output as lines of text, without the table of sources.

    Args:
        tokenizer: the target's; None to show token ids.
        explanation: the use of neural drafters by a hybrid drafter; empty for another drafter.
        colours: which outputs have colours. If stdout has none, the output repeats the text, in colours or with marks.
    """
    tokens = [token for step in steps for token in step.tokens]
    sources = [source for step in steps for source in step.sources]
    lines = [] if colours.text else [*_text_by_source(steps, colours.report), ""]
    for store in stores:
        lines += [*_passage_lines(tokenizer, store, tokens, sources), ""]
    return [*lines, *explanation.lines()]


def copied_passages(store: Retriever, tokens: Sequence[int], sources: Sequence[int]) -> list[Passage]:
    """The longest parts of ``tokens`` that occur in ``store``, if they contain a token drafted from a datastore.

    At most MOST_PASSAGES are returned. They have SHORTEST tokens or more, are distinct, and do not overlap.
    """
    longest = int(store.info()["order_depth"])
    contexts = [_known(tokens[max(0, end - longest) : end], store.vocab_size) for end in range(1, len(tokens) + 1)]
    parts = [contexts[begin : begin + BATCH] for begin in range(0, len(contexts), BATCH)]
    matches = [match for part in parts for match in store.lookup_batch(part, longest, 1)]
    found = [Passage(end - match.length, end, match.count) for end, match in enumerate(matches, 1)]
    marked = [
        each
        for each in found
        if each.length >= SHORTEST and any(bits & RETRIEVED for bits in sources[each.begin : each.end])
    ]
    chosen: dict[tuple[int, ...], Passage] = {}
    for each in sorted(marked, key=lambda passage: -passage.length):
        if all(each.end <= other.begin or other.end <= each.begin for other in chosen.values()):
            chosen.setdefault(tuple(tokens[each.begin : each.end]), each)
    return list(chosen.values())[:MOST_PASSAGES]


def _text_by_source(steps: Sequence[Step], coloured: bool) -> Iterator[str]:
    """The text in colours, or with each accepted run of tokens as <letter:text>."""
    pieces = [piece for step in steps for piece in step.pieces]
    if coloured:
        yield "".join(paint(text, bits) for text, bits in pieces)
        yield legend(bits for _, bits in pieces)
        return
    marks = dict(zip(sorted({bits for _, bits in pieces if bits}), string.ascii_lowercase, strict=False))
    names = ", ".join(f"<{letter}:...> {source_name(bits)}" for bits, letter in marks.items())
    yield f"text by source: {names or 'no drafted token was accepted'}; unmarked: the target's own tokens"
    runs = [("".join(text for text, _ in run), bits) for bits, run in groupby(pieces, key=lambda piece: piece[1])]
    yield "".join(f"<{marks[bits]}:{text}>" if bits else text for text, bits in runs)


def _passage_lines(tokenizer: Any, store: Retriever, tokens: Sequence[int], sources: Sequence[int]) -> Iterator[str]:
    passages = copied_passages(store, tokens, sources)
    if not passages:
        yield f"datastore {printable(store.name)}: no passage of {SHORTEST} tokens or more was copied from it"
        return
    yield f"datastore {printable(store.name)}: the longest copied passages, and documents that hold them"
    for passage in passages:
        ids = list(tokens[passage.begin : passage.end])
        text = str(tokenizer.decode(ids)) if tokenizer is not None else " ".join(map(str, ids))
        yield f"  {passage.length} tokens, {count(passage.count, 'time')}: {text!r}"
        yield from _document_lines(store, ids)


def _document_lines(store: Retriever, ids: Sequence[int]) -> Iterator[str]:
    try:
        places = store.occurrences(ids, MOST_DOCUMENTS, 0)
    except (PermissionDenied, Unsupported) as error:  # raised by a draft service
        yield f"    documents unknown: {error}"
        return
    for place in places:
        name = f"{printable(place.datastore)}: " if len(store.names) > 1 else ""
        yield f"    {name}{document_id(place)}, token {place.offset}"


def _known(ids: Sequence[int], vocab_size: int) -> Sequence[int]:
    """The ids that follow the last id outside the datastore's vocabulary."""
    unknown = [place for place, token in enumerate(ids) if token >= vocab_size]
    return ids[unknown[-1] + 1 :] if unknown else ids
