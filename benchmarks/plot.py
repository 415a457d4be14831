"""Draws bar charts as PNG or SVG, without a display."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffolk.benchmarks.folder import make_folder
from suffolk.benchmarks.report import import_optional
from suffolk.datastore.files import write_bytes

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#f0e442")
"""Colours that colour-blind readers can tell apart, on white and on black (Okabe and Ito). Further series are hatched."""

_ROOM = 18
"""Largest number of bars in a chart with horizontal value labels. In a chart with more bars, they are vertical."""
_SHORT = 14
"""Characters in the name of a series. Four names of this length fit below a chart."""
_INK = "#010203"
"""Stands for the colour of the surrounding text in an SVG."""
_SVG: dict[str, Any] = {
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "svg.fonttype": "none",  # text stays text, in the page's font
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: a group of bars for each label, with one bar for each series.

    Attributes:
        title, unit: title, and unit of the value axis.
        labels: names of the groups.
        series: map from name to one value for each label; None draws no bar.
        logarithmic: whether the value axis is logarithmic.
    """

    title: str
    unit: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    logarithmic: bool = False


def series(rows: Collection[Mapping[str, Any]], names: Iterable[str], field: str) -> dict[str, list[float | None]]:
    """Return the series of a panel with a label for each of ``rows``: map each name to the values of its ``field``."""
    return {name: [row[name][field] for row in rows] for name in names}


def require_plots() -> None:
    """Check before a long run that plots can be drawn.

    Raises:
        Unsupported: matplotlib is not installed.
    """
    _figure_class()


def write_plot(path: Path, title: str, panels: Sequence[Panel]) -> None:
    """Draw ``panels``, two in a row, into a PNG file. Creates the folder.

    Raises:
        Unsupported: matplotlib is not installed.
        PermissionDenied, ResourceExhausted: the file cannot be written.
    """
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = _figure_class()(figsize=(7.5 * columns, 0.6 + 4.4 * rows), layout="constrained")
    with _style():
        figure.suptitle(title)
        axes = figure.subplots(rows, columns, squeeze=False).flatten()
        for axis, panel in zip(axes, panels, strict=False):
            _draw(axis, panel)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        file = io.BytesIO()
        figure.savefig(file, dpi=130, format="png")
    make_folder(path.parent)
    write_bytes(path, file.getvalue())


def svg(panel: Panel) -> str:
    """Draw ``panel`` as an SVG element for a page. The element takes the page's text colour and font. Names are escaped.

    Raises:
        Unsupported: matplotlib is not installed.
    """
    figure = _figure_class()(figsize=(6.6, 4.2), layout="constrained")
    file = io.StringIO()
    with _style(**_SVG, **{"svg.hashsalt": panel.title}):
        _draw(figure.subplots(), panel)
        figure.savefig(
            file, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    drawn = file.getvalue()
    drawn = drawn[drawn.index("<svg") :].replace(_INK, "currentColor")
    return re.sub(r' id="[\w.]+_\d+"', "", drawn)  # nothing refers to these ids; other charts repeat them


def _draw(axis: Any, panel: Panel) -> None:
    width = 0.8 / max(1, len(panel.series))
    crowded = len(panel.series) * len(panel.labels) > _ROOM
    for number, (name, values) in enumerate(panel.series.items()):
        places = [place + (number - (len(panel.series) - 1) / 2) * width for place in range(len(values))]
        drawn = [(place, value) for place, value in zip(places, values, strict=True) if value is not None]
        colour, hatch = COLOURS[number % len(COLOURS)], "//" * (number // len(COLOURS))
        bars = axis.bar(
            [place for place, _ in drawn], [value for _, value in drawn], width, label=name, color=colour, hatch=hatch
        )
        axis.bar_label(bars, fmt=_label, fontsize=7, rotation=90 if crowded else 0, padding=2)
    axis.set_xticks(range(len(panel.labels)), panel.labels, fontsize=8)
    axis.set_title(panel.title, fontsize=10)
    axis.set_ylabel(panel.unit)
    if panel.logarithmic:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, place: _label(value))
    axis.margins(y=0.12)
    axis.spines[["top", "right"]].set_visible(False)
    if len(panel.series) > 1:
        below = -0.09 - 0.035 * max(label.count("\n") for label in panel.labels)  # below the labels
        columns = 4 if max(map(len, panel.series)) <= _SHORT else 2
        axis.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, below), ncols=columns)


def _label(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _style(**settings: Any) -> Any:
    """Set ``settings`` of matplotlib inside a block. A dollar sign in a name is drawn, and does not begin a formula."""
    import matplotlib

    changed: Any = {"text.parse_math": False} | settings
    return matplotlib.rc_context(changed)


def _figure_class() -> Any:
    return import_optional("matplotlib.figure", "matplotlib").Figure
