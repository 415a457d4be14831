"""Serves web pages and their files, and writes a run as one self-contained page.

Pages are static, load nothing from other hosts, and have a strict content security policy.
A page names everything relative to its own address, and calls only the server that it comes from.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # browsers ask again, because a newer server has newer files
}
"""Headers of every page and file. Scripts and styles come only from files. So text that becomes markup by mistake
cannot run."""
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+\.js)";\n', re.MULTILINE)
_STYLES = ("style.css", "playground.css")
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Suffolk: drafts of one answer</title>
<style>{style}</style>
</head>
<body>
<header class="page"><h1>Drafts of one answer</h1><span id="model" class="muted"></span></header>
<main>
<noscript><p class="notice bad">This page needs JavaScript.</p></noscript>
<section class="card" aria-label="Prompt"><h2>Prompt</h2><div id="prompt" class="text-box"></div>
<ul id="settings" class="legend muted"></ul></section>
<div id="answers" class="answers"></div>
<div id="step"><p class="muted small">Select a token to see its step.</p></div>
</main>
<footer class="page">Drafts change the speed, never the text.</footer>
<script type="application/json" id="run">{run}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def page_routes(page: str) -> list[Route]:
    """Two kinds of routes: the page ``page``, such as "worker.html", at /, and each static file at /playground/NAME.

    They hold no data, so they may be ``open_routes`` of ``build_app``.
    """
    names = sorted(file.name for file in FOLDER.iterdir() if file.suffix in _TYPES and file.suffix != ".html")
    return [_route("/", page), *(_route(f"/playground/{name}", name) for name in names)]


@cache
def static_text(name: str) -> str:
    """The text of the static file ``name``."""
    return (FOLDER / name).read_text("utf-8")


def _route(path: str, name: str) -> Route:
    async def answer(request: Request) -> Response:
        return Response(static_text(name), headers=HEADERS, media_type=_TYPES[Path(name).suffix])

    return Route(path, answer)


def report_page(run: Mapping[str, Any]) -> str:
    """The page of ``run``. It has the views of the worker's page, and needs neither server nor network.

    ``run``: ``model`` and ``prompt``, texts; ``settings``: name -> value; ``answers``: a list of ``title``, ``drafter``, ``steps``
    (docs/reference/step-trace.md) and ``passages``, from "STEP.NODE" to the answer of /suffolk/passages.
    """
    style, script = "\n".join(map(static_text, _STYLES)), bundled("report.js")
    own = f"style-src '{_source(style)}'; script-src '{_source(script)}'"
    policy = f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
    return _PAGE.format(policy=policy, style=style, script=script, run=embedded(run))


def embedded(value: Any) -> str:
    """JSON that can stand in an HTML element: no text in it can end the element or begin a comment."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")


def bundled(entry: str) -> str:
    """The static module ``entry`` and the modules that it imports, as one script. REQUIRES: their top-level names differ."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for imported in _IMPORT.findall(static_text(name)):
                visit(imported)
            order.append(name)

    visit(entry)
    return "\n".join(re.sub(r"^export ", "", _IMPORT.sub("", static_text(name)), flags=re.MULTILINE) for name in order)


def _source(text: str) -> str:
    """The source expression of a content security policy that permits ``text`` alone."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
