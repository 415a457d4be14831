"""The output of ``suffolk lookup`` for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from suffolk.build_index.report import count
from suffolk.cli.tree_lines import DIM, DrawnTree

MATCH = "bold green"
BEFORE = 24
"""Characters before an occurrence that are shown."""
_LABEL = 14
"""Width of the labels."""


def shown(report: dict[str, Any], draft: bool, console: Console | None = None) -> str:
    """The report of ``make_report`` as lines of text.

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
    """Texts are cut to the width, strings are not."""
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
    yield from _tree(report, ascii).lines(sorted(_shown_nodes(report)))
    if report["ends_here"]:
        yield "  none: every occurrence is at the end of its document"
    yield from _occurrences(report)
    if draft:
        yield from _draft(report["draft"])


def _tree(report: dict[str, Any], ascii: bool) -> DrawnTree:
    draft = report["draft"]
    shares = [count / report["match_count"] for count in draft["counts"]]
    return DrawnTree(draft["parents"], draft["counts"], draft["texts"], shares, draft["datastores"], ascii)


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
