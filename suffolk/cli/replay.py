"""Choose a corpus, a drafter and its settings without serving: let drafters draft along texts that were recorded before.

Record texts with --record of 'suffolk worker', 'generate' or 'bench decode'; a recording holds the users' texts, as token
ids. Each drafter goes through all texts in their order and learns from text to text, as in service. Without --costs every step
drafts and all nodes are verified: what drafts are worth, whatever they cost. With --costs the planner chooses, as in service,
and the speed-up is predicted from these costs. Drafters that read tokens alone need no model.

Ctrl-C ends it early: the drafters and sizes that went through all texts by then are reported, marked as a part (where there is
none, the first with the texts that it has done), and the exit code is 130."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from suffolk.benchmarks.stopping import exit_code, stop_lines
from suffolk.cli.drafter_options import add_drafter_options, chosen_drafters, read_drafter_config
from suffolk.cli.filled import filled, filled_path
from suffolk.cli.model_options import (
    DEFAULT_NODES,
    add_calibration_option,
    add_device_options,
    add_retrieval_options,
    kept_calibration,
    load_target,
    open_store,
    read_limits,
    require_costs,
    require_threads,
)
from suffolk.cli.output_file import require_folder
from suffolk.datastore.errors import InvalidArgument, NotFound, Unsupported
from suffolk.datastore.retriever import Retriever
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.drafters.registry import find, names
from suffolk.serving.drafters.retrieval.require_match import require_match
from suffolk.serving.transport.limits import MAX_NODES, check_range

if TYPE_CHECKING:
    from suffolk.serving.drafters.retrieval.limits import Limits
    from suffolk.serving.engine.costs.cost_model import CostModel
    from suffolk.serving.engine.model.target import Target
    from suffolk.serving.replay.recording import Recording

EPILOG = """examples:
  suffolk worker --model MODEL_FOLDER --record day.jsonl                    records a day of traffic
  suffolk replay day.jsonl --datastore code/ --nodes 8 16 64
  suffolk replay day.jsonl --datastore code/ --datastore chat/ --drafter hybrid --max-match 12
  suffolk replay day.jsonl --datastore code/ --drafter hybrid --calibration code.json      learns, for the service to begin with
  suffolk replay day.jsonl.zst --datastore code/ --costs costs.json         as 'suffolk profile --output costs.json' wrote it
  suffolk replay day.jsonl --model MODEL_FOLDER --head HEAD_FOLDER --datastore code/ --costs stored
"""
NO_COSTS = "none"
STORED = "stored"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``suffolk replay``."""
    parser.epilog = EPILOG
    parser.add_argument(
        "recordings",
        nargs="+",
        type=filled_path,
        metavar="RECORDING",
        help=".jsonl file of recordings, or .jsonl.zst or .gz",
    )
    parser.add_argument(
        "--recorded-with",
        metavar="DRAFTER",
        help="only texts that this drafter decoded, 'none' for nobody ('bench decode' records each text once a drafter)",
    )
    drafting = parser.add_argument_group("drafting")
    drafting.add_argument(
        "--drafter",
        action="append",
        choices=names(),
        help="who drafts; may be repeated, each begins anew (default: all that can run)",
    )
    drafting.add_argument(
        "--nodes",
        type=int,
        nargs="+",
        default=[DEFAULT_NODES],
        metavar="N",
        help=f"largest tree; several are tried in turn (default: {DEFAULT_NODES})",
    )
    add_drafter_options(drafting, ["datastore"])
    add_retrieval_options(drafting)
    add_calibration_option(drafting)
    costs = parser.add_argument_group("costs")
    costs.add_argument(
        "--costs",
        type=filled,
        default=NO_COSTS,
        metavar="FILE",
        help="a file of 'suffolk profile', of any model and device: the planner chooses, as in service; stored: those of --model "
        "that 'suffolk profile' has stored; none: all nodes are verified (default: %(default)s)",
    )
    costs.add_argument(
        "--draft-ms",
        type=float,
        metavar="MS",
        help="with --costs: what a draft is taken to cost (default: what it takes here and now)",
    )
    networks = parser.add_argument_group("networks", "one pass of the model over each text gives what they read of it")
    networks.add_argument("--model", type=filled, help="the model that was recorded, as in 'suffolk generate'")
    add_drafter_options(networks, without=["datastore"])
    add_device_options(networks)
    parser.add_argument("--json", type=filled_path, metavar="FILE", help="write all results there")


def run(args: argparse.Namespace) -> int:
    """Replay, print, write; returns the exit code."""
    from suffolk.cli.replay_report import head_lines, result_lines, write_results

    limits, chosen = read_limits(args), chosen_drafters(args, names())
    _check(args, chosen)
    require_folder("--json", args.json)
    recordings = _recordings(args)
    if args.costs not in (NO_COSTS, STORED):
        require_costs(Path(args.costs))
    with (
        kept_calibration(args.calibration) as calibration,
        _opened(args.datastore, args.deadline_ms, limits, recordings) as stores,
    ):
        target = _target(args, recordings)
        costs, origin = _costs(args.costs, target)
        config = read_drafter_config(args)
        draft_seconds = None if args.draft_ms is None else args.draft_ms / 1e3
        from suffolk.cli.replay_runs import Setting, replay_all  # loads torch: not before all is found to fit

        setting = Setting(
            recordings,
            stores,
            limits,
            config,
            target,
            costs,
            draft_seconds,
            None if args.calibration is None else calibration,
        )
        print("\n".join(head_lines(args.recordings, recordings, origin)), file=sys.stderr)
        found, stopped = replay_all(setting, args.nodes, chosen)
    print("\n".join([*stop_lines(stopped), *result_lines(found)]))
    if args.json is not None:
        write_results(args.json, args, recordings, origin, found, stopped)
    return exit_code(stopped)


def _check(args: argparse.Namespace, chosen: Sequence[str]) -> None:
    """Raises InvalidArgument for what is out of its range or acts on nothing. Nothing is loaded for it."""
    for nodes in args.nodes:
        check_range("--nodes", nodes, 1, MAX_NODES)
    require_threads(args)
    if args.calibration is not None and len(chosen) * len(args.nodes) > 1:
        raise InvalidArgument(
            f"--calibration {args.calibration} is of one drafter; name one --drafter and one size of --nodes"
        )
    networks = [name for name in read_drafter_config(args).parts() if find(name).needs_target]
    if networks and args.model is None:
        raise InvalidArgument(f"drafter {networks[0]} reads the model that was recorded; add --model MODEL")
    if networks and not {"hybrid", *networks} & set(chosen):
        raise InvalidArgument(
            f"{networks[0]} drafts for no --drafter that is named; leave it out, or name it or hybrid"
        )
    if args.model is None and (args.dtype, args.device, args.threads) != ("auto", "auto", None):
        raise InvalidArgument("--dtype, --device and --threads are of --model; leave them out, or add it")
    if args.model is not None and not networks and args.costs != STORED:
        raise InvalidArgument(
            f"--model {args.model} is of no use without a network or --costs {STORED}; leave it out, or add --head, "
            "--draft-model, --exit-layers, --levels or --recycle"
        )
    if args.costs == STORED and args.model is None:
        raise InvalidArgument(f"--costs {STORED} needs the model whose costs are stored; add --model, or name a file")
    if args.draft_ms is not None and not 0 <= args.draft_ms <= 60_000:
        raise InvalidArgument(f"--draft-ms is {args.draft_ms}; it must be between 0 and 60000")
    if args.draft_ms is not None and args.costs == NO_COSTS:
        raise InvalidArgument("--draft-ms does nothing without --costs; leave it out, or add --costs FILE")


def _recordings(args: argparse.Namespace) -> list[Recording]:
    from suffolk.serving.replay.read import read_recordings

    recordings = read_recordings(args.recordings)
    wanted = args.recorded_with
    if wanted is None:
        return recordings
    kept = [each for each in recordings if each.drafter == wanted]
    if not kept:
        known = ", ".join(sorted({each.drafter for each in recordings}))
        raise InvalidArgument(f"--recorded-with {wanted}: no text was decoded with it; the recordings have {known}")
    return kept


@contextmanager
def _opened(
    names: Sequence[str], deadline_ms: float | None, limits: Limits, recordings: Sequence[Recording]
) -> Iterator[list[Retriever]]:
    """The datastores, found to fit the recordings; closed at the end."""
    with ExitStack() as stack:
        stores: list[Retriever] = []
        for name in names:
            store = open_store(name, deadline_ms)
            stack.callback(store.close)
            _require_fit(store, name, limits, recordings)
            stores.append(store)
        yield stores


def _require_fit(store: Retriever, name: str, limits: Limits, recordings: Sequence[Recording]) -> None:
    """Raises as ``require_match``, and InvalidArgument if the datastore does not know an id of a text."""
    first = recordings[0]
    facts = store.info()
    if first.tokenizer is None:
        limits.require_within(int(facts["order_depth"]))
    else:
        require_match(store, name, limits, first.model, first.tokenizer)
    known = int(facts["vocab_size"])
    highest = max(int(max(each.prompt.max(), each.generated.max())) for each in recordings)
    if highest >= known:
        raise InvalidArgument(
            f"datastore {name} has token ids 0..{known - 1}, and a recording of model {first.model} has {highest}; build one "
            "with this model's tokenizer"
        )


def _target(args: argparse.Namespace, recordings: Sequence[Recording]) -> Target | None:
    """The model, found to be the recorded one as far as its ids tell."""
    if args.model is None:
        return None
    first = recordings[0]
    own = None if first.tokenizer is None else fingerprint(load_tokenizer(args.model))
    if own != first.tokenizer:
        raise Unsupported(
            f"model {args.model} has tokenizer {str(own)[:12]}, the recordings of model {first.model} have "
            f"{str(first.tokenizer)[:12]}; name the model that was recorded"
        )
    target = load_target(args, max(len(each.prompt) + len(each.generated) for each in recordings))
    if target.vocab_size != first.vocab_size:
        raise Unsupported(
            f"model {args.model} has {target.vocab_size} ids, the recorded model {first.model} has {first.vocab_size}; name the "
            "model that was recorded"
        )
    return target


def _costs(wanted: str, target: Target | None) -> tuple[CostModel | None, str]:
    """The costs that are asked for, and where they are from in words."""
    if wanted == NO_COSTS:
        return None, ""
    from suffolk.serving.engine.costs.cost_store import CostKey, CostStore, read_costs

    path = Path(wanted)
    if wanted == STORED:
        assert target is not None
        path = CostStore().path(CostKey.of(target))
        if not path.is_file():
            raise NotFound(f"--costs {STORED}: none are stored for this model and device; 'suffolk profile' makes them")
    costs, key = read_costs(path)
    return costs, f"{path}, measured on {key['device']} in {key['dtype']}"
