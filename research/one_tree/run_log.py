"""A results file that a long measurement appends to, and continues from after an interruption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from suffolk.benchmarks.folder import make_folder, writing
from suffolk.datastore.errors import Corruption, InvalidArgument

Row = dict[str, Any]


class RunLog:
    """JSON lines: the settings, then one row for each result, written immediately. Not thread-safe.

    Attributes:
        rows: the rows of the file, in order.
        runs: number of times that the file was opened, including this one.
    """

    def __init__(self, path: Path, settings: Row) -> None:
        """Create the file, or read its rows. An incomplete last line is removed.

        Raises:
            InvalidArgument: the file belongs to a measurement with other ``settings``.
            Corruption: a line other than the last is not JSON.
            ResourceExhausted: it cannot be written.
        """
        self._path = path
        make_folder(path.parent)
        lines = self._whole_lines()
        wanted = json.loads(json.dumps(settings))
        if lines and lines[0].get("settings") != wanted:
            differing = sorted(key for key in wanted if lines[0].get("settings", {}).get(key) != wanted[key])
            raise InvalidArgument(
                f"{path} belongs to a run with other settings ({', '.join(differing) or 'fewer'}); "
                "repeat its command, or name another folder"
            )
        if not lines:
            self._append({"settings": wanted})
        self._append({"opened": True})
        self.runs = 1 + sum("opened" in line for line in lines)
        self.rows: list[Row] = [line for line in lines[1:] if "opened" not in line]

    def has(self, **key: Any) -> bool:
        """Whether a row has all items of ``key``."""
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.rows)

    def add(self, row: Row) -> None:
        """Write ``row``. Raises ResourceExhausted if that fails."""
        self._append(row)
        self.rows.append(row)

    def _append(self, row: Row) -> None:
        with writing(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _whole_lines(self) -> list[Row]:
        if not self._path.exists():
            return []
        text = self._path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # the run was killed while it wrote
            with writing(self._path):
                self._path.write_text(whole, encoding="utf-8")
        try:
            return [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise Corruption(f"{self._path} has a line that is not JSON ({error}); name another folder") from error
