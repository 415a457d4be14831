"""Tables of results, as plain text or for a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Table:
    """Columns with headers. ``str`` formats it as plain text.

    Attributes:
        headers: names of the columns.
        rows: one value for each column. Floats below 1000 are shown with three significant digits, larger ones as whole numbers,
            None as "-".
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[object]]

    @staticmethod
    def of(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> Table:
        """The table of ``rows``. ``columns``: the headers, each with the format of its cells, such as "{speed_up:.2f}"."""
        return Table(list(columns), [[form.format_map(row) for form in columns.values()] for row in rows])

    def cells(self) -> list[list[str]]:
        """The rows as text."""
        return [[_format(value) for value in row] for row in self.rows]

    def __str__(self) -> str:
        cells = [list(self.headers), *self.cells()]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.headers))]
        lines = [_line(row, widths) for row in cells]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join(lines)


def format_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format columns of minimal width, the first aligned left, the others right."""
    return str(Table(headers, rows))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first = row[0].ljust(widths[0])
    return "  ".join([first, *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]).rstrip()


def _format(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
