"""Runs the checks of all clients against ``suffolk worker``, and writes their table: python -m tests.clients.run MODEL_FOLDER

The clients are in environments of their own: ``make clients`` installs them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tests.support.processes import running

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-clients"
PAGE = ROOT / "docs/reference/clients.md"
Row = dict[str, str]


def main(folder: str) -> int:
    """Returns 1 if a check failed."""
    arguments = ("worker", "--model", folder, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--slots", "4")
    with running(*arguments, "--set", "reasoning=<think> </think>") as worker:
        url = f"http://{worker.endpoint('http')}"
        python = [str(ENVIRONMENT / "bin/python"), str(ROOT / "tests/clients/checks.py"), url, folder]
        rows = [*_rows(python), *_rows(["node", str(ENVIRONMENT / "checks.mjs"), url])]
    PAGE.write_text(re.sub(r"(?s)(<!-- checks -->\n).*(<!-- end -->)", rf"\1\n{_table(rows)}\n\2", PAGE.read_text()))
    failed = [row for row in rows if row["error"]]
    print(_table(rows))
    for row in failed:
        print(f"{row['client']}: {row['check']}: {row['error']}")
    return int(bool(failed))


def _rows(command: Sequence[str]) -> list[Row]:
    found = subprocess.run(command, cwd=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in found.splitlines() if line.startswith('{"client"')]


def _table(rows: Sequence[Row]) -> str:
    lines = ["| client | version | checks | result |", "| -- | -- | -- | -- |"]
    for (client, version), group in groupby(rows, lambda row: (row["client"], row["version"])):
        own = list(group)
        failed = [row["check"] for row in own if row["error"]]
        result = f"fails: {', '.join(failed)}" if failed else "passes"
        lines.append(f"| {client} | {version} | {', '.join(row['check'] for row in own)} | {result} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
