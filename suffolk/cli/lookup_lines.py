"""The output of ``suffolk lookup`` for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from suffolk.build_index.report import count

MATCH = "bold green"
BEFORE = 24
"""Characters before an occurrence that are shown."""
_LABEL = 14
"""Width of the labels."""
DIM = "dim"
"""Style of everything but the texts."""
_LINES = ("├─ ", "└─ ", "│  ")
_ASCII = ("|- ", "`- ", "|  ")


def shown(report: dict[str, Any], draft: bool, console: Console | None = None) -> str:
    """Format the report of ``make_report`` as lines of text.

    Args:
        draft: also show the draft tree that a decoder would get.
        console: where the text is shown; None: on stdout. On a terminal, lines of trees and occurrences are cut to its width.
    """
    console = console or Console(file=sys.stdout, highlight=False, soft_wrap=True)
    with console.capture() as capture:
        for line in _lines(report, draft, _is_ascii(console)):
            is_cut = console.is_terminal and not isinstance(line, str)
            console.print(
                line, markup=False, soft_wrap=not is_cut, no_wrap=is_cut, overflow="ellipsis" if is_cut else None
            )
    return capture.get().removesuffix("\n")


def _lines(report: dict[str, Any], draft: bool, ascii: bool) -> Iterator[str | Text]:
    """Yield lines. Lines of type ``Text`` are cut to the width; strings are not cut."""
    tokens, length = [repr(each) for each in report["tokens"]], report["match_length"]
    split = max(0, len(tokens) - length)
    yield _labelled(
        "context", f"{count(report['context_tokens'], 'token')}: {' '.join([*tokens[:split], '|', *tokens[split:]])}"
    )
    if length == 0:
        yield f"no match: none of the last tokens of the context ({report['context_tokens']} in all) occurs"
    else:
        yield _labelled("match length", f"{length} of {report['context_tokens']} tokens: {report['match']!r}")
        yield _labelled("match count", f"{report['match_count']:,}")
    if report["partial"]:
        yield _labelled("partial", "some shards could not be searched, so matches may be missing and counts too low")
    yield from (_labelled("hint", hint) for hint in report["hints"])
    if length == 0:
        return
    yield _labelled("continuations", "count, share, text")
    yield from _tree(report, ascii)
    if report["ends_here"]:
        yield "  none: every occurrence is at the end of its document"
    yield from _occurrences(report)
    if draft:
        yield from _draft(report["draft"])


def _tree(report: dict[str, Any], ascii: bool) -> Iterator[Text]:
    """Draw the nodes on the paths to the continuations."""
    children: dict[int, list[int]] = {}
    for node in sorted(_shown_nodes(report)):
        children.setdefault(report["draft"]["parents"][node], []).append(node)
    return _branches(report, children, -1, "", _ASCII if ascii else _LINES)


def _branches(
    report: dict[str, Any], children: Mapping[int, list[int]], parent: int, indent: str, strokes: tuple[str, str, str]
) -> Iterator[Text]:
    """Draw a line for each node below ``parent``. A node and its only child share a line if they have the same count."""
    fork, end, trunk = strokes
    counts, nodes = report["draft"]["counts"], children.get(parent, [])
    for node in nodes:
        run = [node]
        while len(after := children.get(run[-1], [])) == 1 and counts[after[0]] == counts[node]:
            run += after
        is_last = node == nodes[-1]
        yield _branch(report, run, indent + (end if is_last else fork))
        yield from _branches(report, children, run[-1], indent + ("   " if is_last else trunk), strokes)


def _branch(report: dict[str, Any], run: Sequence[int], guide: str) -> Text:
    draft, times = report["draft"], report["draft"]["counts"][run[0]]
    texts = [draft["texts"][node] for node in run]
    text = "".join([*(each for each in texts[:-1] if each != "\ufffd"), texts[-1]])  # \ufffd: a part of a character
    held = [f"{name} {counts[run[0]]:,}" for name, counts in draft["datastores"].items() if counts[run[0]]]
    line = Text(f"  {times:>10,}  ")
    line.append(f"{times / report['match_count']:6.1%}  {guide}", DIM).append(repr(text))
    return line.append(f"  ({', '.join(held)})" if held else "", DIM)


def _shown_nodes(report: dict[str, Any]) -> set[int]:
    """The nodes on the paths to the continuations."""
    found: set[int] = set()
    for each in report["continuations"]:
        node = each["node"]
        while node >= 0 and node not in found:
            found.add(node)
            node = report["draft"]["parents"][node]
    return found


def _occurrences(report: dict[str, Any]) -> Iterator[str | Text]:
    if not report["names_documents"]:
        yield _labelled("occurrences", f"not shown: {report['occurrences_problem']}")
    elif report["occurrences"]:
        yield _labelled("occurrences", f"{len(report['occurrences'])} of {report['match_count']:,}, by document id")
    is_one = not report["draft"]["datastores"]
    for place in report["occurrences"]:
        yield f"  {'' if is_one else place['datastore'] + ': '}{place['shown']}, token {place['offset']}"
        before, match, after = place["parts"]
        escaped = [repr(part)[1:-1] for part in (before[-BEFORE:], match, after)]
        yield Text.assemble("    ", (f"{escaped[0]}|", DIM), (escaped[1], MATCH), (f"|{escaped[2]}", DIM))


def _draft(draft: dict[str, Any]) -> Iterator[str]:
    yield _labelled("draft", f"{len(draft['tokens'])} nodes: estimated acceptance, count, token")
    depths: list[int] = []
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(draft["parents"]):
        depths.append(0 if parent < 0 else depths[parent] + 1)
        children.setdefault(parent, []).append(node)
    pending = children.get(-1, [])[::-1]
    while pending:
        node = pending.pop()
        yield f"  {draft['scores'][node]:5.2f} {draft['counts'][node]:>10,}  {'  ' * depths[node]}{draft['texts'][node]!r}"
        pending += children.get(node, [])[::-1]


def _labelled(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}"


def _is_ascii(console: Console) -> bool:
    try:
        "├".encode(console.encoding)
    except UnicodeEncodeError:
        return True
    return False
