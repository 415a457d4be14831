"""Show the servers of a cluster: where they run, their versions, load, and the generation that each serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from suffolk.cli.cluster.options import NamedOptions
from suffolk.cli.options.setting import option

EXAMPLES = """
suffolk cluster status
suffolk cluster status --json"""
_COLUMNS = ("server", "state", "node", "grpc", "http", "version", "serves", "restarts")


@dataclass(frozen=True, kw_only=True)
class Options(NamedOptions):
    json: bool = option(False, "print one JSON object, with the last events too")


def run(options: Options) -> int:
    """Print the status; returns 0 if all wanted servers run, else 1."""
    with options.connected():
        from suffolk.serving.cluster.lifecycle import status

        found = status(options.name())
    print(json.dumps(found) if options.json else "\n".join(_lines(found)))
    return 0 if found["settled"] else 1


def _lines(found: dict[str, Any]) -> Iterator[str]:
    state = "all servers run" if found["settled"] else "not all wanted servers run, or a live store has no leader"
    yield f"cluster {found['name']}, {len(found['nodes'])} nodes: {state}"
    rows = [_COLUMNS, *map(_row, found["servers"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for server in found["servers"]:
        if problem := server.get("problem") or (server["state"] != "ready" and server["error"]):
            yield f"{server['name']}: {problem}"


def _row(server: dict[str, Any]) -> tuple[str, ...]:
    if server["kind"] == "store":
        replicas, shard = server.get("replicas", {}), server.get("shard", "")
        serves = ", ".join(
            _copy(f"{name} {shard}".rstrip(), replicas[name]) if name in replicas else f"{name} generation {each}"
            for name, each in server.get("generations", {}).items()
        )
    else:
        serves = (
            f"{server['running']} of {server['slots']} slots, {server['waiting']} wait" if "slots" in server else ""
        )
    cells = [server["name"], server["state"], *(server.get(key, "") for key in ("node", "grpc", "http", "version"))]
    return (*cells, serves, str(server["restarts"]))


def _copy(name: str, replica: dict[str, Any]) -> str:
    return f"{name} leads" if replica["leads"] else f"{name} {replica['lag_seconds']:.1f} s behind"
