"""Serves web pages and their files: static, without an external host, under a strict content security policy.

A page names everything relative to its own address, and calls only the server that it comes from.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

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
    "Cache-Control": "no-cache",  # a newer version of the server has newer files
}
"""Headers of every page and file. Scripts and styles come only from files, so that text which became markup could not run."""
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def page_routes(page: str) -> list[Route]:
    """Routes of the page ``page``, as in "worker.html", at / and of all static files at /playground/NAME.

    They are for ``open_routes`` of ``build_app``, as they hold no data.
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
