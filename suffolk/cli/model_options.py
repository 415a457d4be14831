"""What commands that run a model share: its options, its datastores, and how it is loaded."""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffolk.cli.drafter_options import add_drafter_options
from suffolk.cli.filled import filled_path
from suffolk.cli.output_file import require_folder
from suffolk.datastore.errors import InvalidArgument, PermissionDenied, Unsupported
from suffolk.datastore.retriever import Retriever
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.drafters.retrieval.limits import Limits
from suffolk.serving.drafters.retrieval.require_match import require_match
from suffolk.serving.engine.model.model_folder import find_folder
from suffolk.serving.transport.limits import MAX_NODES, MAX_THREADS, check_range

if TYPE_CHECKING:
    from suffolk.serving.drafters.calibration.calibration import Calibration
    from suffolk.serving.engine.model.target import Target


log = logging.getLogger(__name__)
DEFAULT_NODES = 64


def add_draft_options(group: argparse._ArgumentGroup) -> None:
    """How far drafts reach, and how long they may take."""
    add_drafter_options(group)
    group.add_argument(
        "--max-nodes", type=int, help=f"largest tree; costs decide how much is used (default: {DEFAULT_NODES})"
    )
    add_retrieval_options(group)
    group.add_argument(
        "--costs",
        type=filled_path,
        metavar="FILE",
        help="what 'suffolk profile' measured (default: what it stored, or a quick look)",
    )


def add_retrieval_options(group: argparse._ArgumentGroup) -> None:
    """How far drafts from texts reach, and how long a draft service may take."""
    group.add_argument(
        "--deadline-ms", type=float, help="time a remote draft may take (default: the URL's, else the client's)"
    )
    group.add_argument("--max-match", type=int, default=16, help="longest match, in tokens (default: %(default)s)")
    group.add_argument("--min-match", type=int, default=1, help="shortest match, in tokens (default: %(default)s)")
    group.add_argument(
        "--max-depth",
        type=int,
        default=10,
        help="depth of drafts, in tokens; of what the request's own text repeats twice that (default: %(default)s)",
    )


def add_device_options(group: argparse._ActionsContainer) -> None:
    """Where and how the model runs."""
    dtypes = ("auto", "float32", "bfloat16", "float16", "float64")
    group.add_argument("--dtype", choices=dtypes, default="auto", help="auto: as stored (default: %(default)s)")
    group.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 ... (default: %(default)s)")
    group.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")


def read_limits(args: argparse.Namespace) -> Limits:
    """Raises InvalidArgument for values out of their ranges."""
    if args.deadline_ms is not None and not args.deadline_ms > 0:
        raise InvalidArgument(f"--deadline-ms is {args.deadline_ms}; it must be above 0")
    return Limits(args.max_match, args.min_match, args.max_depth)


def require_threads(args: argparse.Namespace) -> None:
    """Raises InvalidArgument for a number of threads out of its range."""
    if args.threads is not None:
        check_range("--threads", args.threads, 1, MAX_THREADS)


def require_costs(file: Path | None) -> None:
    """Nothing, if ``file`` is None or holds costs, of whatever model. Raises as ``read_costs``."""
    if file is not None:
        from suffolk.serving.engine.costs.cost_store import read_costs

        read_costs(file)


def read_max_nodes(args: argparse.Namespace) -> int:
    """Raises InvalidArgument for a value out of its range."""
    max_nodes = DEFAULT_NODES if args.max_nodes is None else int(args.max_nodes)
    check_range("--max-nodes", max_nodes, 1, MAX_NODES)
    return max_nodes


def add_calibration_option(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--calibration",
        type=filled_path,
        metavar="FILE",
        help="what drafts have been worth so far: read if it is there, written at the end if anything was learned (what "
        "others wrote there meanwhile is lost); 'suffolk calibration FILE' shows it",
    )


@contextlib.contextmanager
def kept_calibration(path: Path | None) -> Iterator[Calibration]:
    """What ``path`` holds, or nothing yet; written back at the end, also after Ctrl-C. Raises as ``read_calibration``."""
    from suffolk.serving.drafters.calibration.calibration import Calibration
    from suffolk.serving.drafters.calibration.calibration_file import read_calibration, write_calibration

    require_folder("--calibration", path)
    if path is not None and path.exists() and not path.is_file():
        raise PermissionDenied(f"--calibration {path}: cannot be written; name a file in a folder of yours")
    calibration = read_calibration(path) if path is not None and path.exists() else Calibration()
    try:
        yield calibration
    finally:
        if path is not None and any(each.reliability.any() for each in calibration.learned()):
            write_calibration(path.resolve(), calibration)  # and not a link to it


@contextlib.contextmanager
def opened_stores(
    names: Sequence[str], deadline_ms: float | None, limits: Limits, model: str
) -> Iterator[list[Retriever]]:
    """The datastores of those names or URLs, found to fit the model; closed at the end."""
    with contextlib.ExitStack() as stack:
        stores: list[Retriever] = []
        for name in names:
            stores.append(open_store(name, deadline_ms))
            stack.callback(stores[-1].close)
            require_match(stores[-1], name, limits, model, fingerprint(load_tokenizer(model)))
            _require_vocabulary(stores[-1], name, model)
        yield stores


def _require_vocabulary(store: Retriever, name: str, model: str) -> None:
    """Of a datastore without a tokenizer only its ids can be held against the model's. A smaller vocabulary may be right: models
    have room for more ids than their tokenizers use.

    Raises:
        Unsupported: it has ids that the model does not know.
    """
    facts = store.info()
    if facts.get("tokenizer") is not None:
        return
    from suffolk.serving.engine.model.target_loader import read_vocab_size

    built_for, known = int(facts["vocab_size"]), read_vocab_size(model)
    if built_for > known:
        raise Unsupported(
            f"datastore {name} was built for {built_for} token ids, model {model} has {known}; build one from this model's "
            "token ids, with its --vocab-size"
        )
    log.warning(
        "datastore %s has no tokenizer, so whether it fits model %s cannot be checked; with another tokenizer's ids its drafts "
        "are rejected, and the text stays the same",
        name,
        model,
    )


def silence_transformers() -> None:
    """Let its notes and progress bars stay out of what commands print."""
    import transformers

    messages: Any = transformers.utils.logging
    messages.disable_progress_bar()
    messages.set_verbosity_error()


def require_models(args: argparse.Namespace) -> None:
    """Raises NotFound if --model or --draft-model is a path, and no model's. Comes before torch is loaded, which takes seconds."""
    for name in (args.model, getattr(args, "draft_model", None)):
        if name is not None:
            find_folder(name)


def load_target(args: argparse.Namespace, cache_tokens: int, accelerate: bool = True) -> Target:
    """The model of ``--model``, quietly; ``accelerate`` as in ``Target.wrap``. Raises as ``Target.load``."""
    require_models(args)
    require_threads(args)
    import torch

    from suffolk.serving.engine.model.target import Target

    silence_transformers()
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    return Target.load(args.model, args.dtype, args.device, cache_tokens, accelerate)


def open_store(name: str, deadline_ms: float | None) -> Retriever:
    """The datastore in that folder or behind that URL. Raises as ``open_datastore`` and ``connect``."""
    from suffolk.serving.transport.url import is_url

    if is_url(name):
        from suffolk.serving.draft_service.client import connect

        return connect(name, None if deadline_ms is None else deadline_ms / 1000)
    from suffolk.datastore.datastore import open_datastore

    return open_datastore(name, "auto")
