"""``suffolk bench`` as a process, and the files that it writes."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.support.forked import suffolk


def bench(*arguments: str | Path) -> str:
    done = suffolk("bench", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def result_files(path: Path) -> tuple[str, ...]:
    """The options for results in the JSON file ``path``, with the page beside it."""
    return "--json", str(path), "--report", str(path.with_suffix(".html"))


def read_report(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    assert {"benchmark", "command", "commit", "versions", "machine", "seed", "settings", "results"} <= set(found)
    assert found["machine"]["cpu"]
    assert found["versions"]["suffolk"]
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    require_page(path.with_suffix(".html"), found)
    return found


def require_page(path: Path, found: dict[str, Any]) -> None:
    """Check that the page shows tables, plots and the run ``found``, and needs no other file and no script."""
    page = Page(path.read_text(encoding="utf-8"))
    shown = " ".join(page.texts)
    assert f"suffolk bench {found['benchmark']}" in page.texts
    for fact in (
        found["command"],
        found["commit"] or "unknown",
        found["finished"],
        found["machine"]["cpu"],
        *found["notes"],
    ):
        assert fact in shown
    assert page.tags.count("table") >= 1
    assert page.tags.count("svg") == page.tags.count("figure") >= 1
    assert page.tags.count("tr") > page.tags.count("table")
    assert not {"script", "link", "img", "iframe", "object", "image"} & set(page.tags)
    assert page.references == []


class Page(HTMLParser):
    """Reads a page. Refuses elements that are not closed.

    Attributes:
        tags: its elements. texts: its text. references: addresses outside the page.
    """

    VOID = ("meta", "!doctype")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.references = re.findall(r"url\((?!#)[^)]*\)|@import", text)
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self._open.append(tag)
        addresses = (value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "data"))
        self.references += [address for address in addresses if not address.startswith("#")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())
