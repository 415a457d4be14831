"""``--record``, of all commands that generate."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from suffolk.cli.filled import filled_path
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer

if TYPE_CHECKING:
    from suffolk.serving.engine.model.target import Target
    from suffolk.serving.replay.recorder import Recorder


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


def opened_recorder(
    file: Path | None, model: str, target: Target
) -> contextlib.AbstractContextManager[Recorder | None]:
    """The recorder for ``file``, of texts of ``target``, the model of that name; None without a file."""
    if file is None:
        return contextlib.nullcontext()
    from suffolk.serving.replay.recorder import Recorder

    tokenizer = None if target.tokenizer is None else fingerprint(load_tokenizer(model))
    return Recorder(file, target.vocab_size, Path(model).absolute().name, tokenizer)
