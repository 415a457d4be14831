"""``--record``, of all commands that generate."""

from __future__ import annotations

import argparse
from pathlib import Path

from suffolk.cli.filled import filled_path


def add_record_option(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--record",
        type=filled_path,
        metavar="FILE",
        help="add a JSON line for every text that ends, for 'suffolk replay'. It holds the prompt and the text, as token ids: "
        "whoever has the tokenizer can read what users wrote",
    )


def require_record(file: Path | None) -> None:
    """Nothing, if ``file`` is None or can take recordings; raises as ``require_recordable``, before a model is loaded."""
    if file is not None:
        from suffolk.serving.replay.recorder import require_recordable

        require_recordable(file)
