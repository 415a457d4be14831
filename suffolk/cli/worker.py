"""Decode for many callers at once: gRPC suffolk.v1.DecodeService, and HTTP with metrics and health on a second port.

Prints one line when it takes requests: serving MODEL on grpc HOST:PORT, http HOST:PORT. SIGTERM or Ctrl-C lets the running
requests end within --grace and ends with 0; a second one ends at once."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from suffolk.cli.drafter_options import chosen_drafters, read_drafter_config
from suffolk.cli.filled import filled
from suffolk.cli.model_options import (
    add_calibration_option,
    add_device_options,
    add_draft_options,
    kept_calibration,
    load_target,
    opened_stores,
    read_limits,
    read_max_nodes,
    require_costs,
    require_threads,
)
from suffolk.cli.record_option import add_record_option, require_record
from suffolk.cli.server_options import add_server_options, read_server_options
from suffolk.datastore.errors import InvalidArgument, ResourceExhausted
from suffolk.serving.drafters.neural.tree_bounds import rows_behind
from suffolk.serving.drafters.registry import NONE, find, names
from suffolk.serving.transport.limits import check_range
from suffolk.serving.transport.url import WORKER_PORT

if TYPE_CHECKING:
    from suffolk.serving.engine.loop.drafter import Drafter
    from suffolk.serving.engine.model.target import Target
    from suffolk.serving.worker.service import DecodeService

LOG = logging.getLogger("suffolk.worker")
EPILOG = """examples:
  suffolk worker --model MODEL_FOLDER                         gRPC on 127.0.0.1:7710, HTTP on 127.0.0.1:7711
  suffolk worker --model MODEL_FOLDER --datastore code/ --datastore grpc://127.0.0.1:7700/wiki --slots 16
  suffolk worker --model MODEL_FOLDER --head HEAD_FOLDER --datastore code/
  suffolk worker --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --slots 4
  suffolk worker --model MODEL_FOLDER --datastore code/ --recycle     drafts also from what the model said in earlier answers
  suffolk worker --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --levels "prompt-lookup:4 > draft-model:6"
  suffolk worker --model MODEL_FOLDER --listen 0.0.0.0:7710 --tls-cert server.pem --tls-key server.key
  suffolk worker --model MODEL_FOLDER --record day.jsonl       every text that ends, for 'suffolk replay'
  suffolk generate --worker grpc://127.0.0.1:7710 "Write a sort function."
  curl http://127.0.0.1:7711/metrics"""
GIB = 1 << 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "--model", type=filled, required=True, help="model folder in the Hugging Face layout, or hub name"
    )
    add_server_options(parser, WORKER_PORT, "/metrics and /healthz", grace=30.0)
    room = parser.add_argument_group("room")
    room.add_argument(
        "--slots", type=int, default=8, metavar="N", help="requests decoded at once (default: %(default)s)"
    )
    room.add_argument(
        "--capacity",
        type=int,
        default=4096,
        metavar="N",
        help="tokens of a request: prompt, new tokens, largest tree (default: %(default)s, or less if the model takes less)",
    )
    room.add_argument(
        "--queue",
        type=int,
        default=64,
        metavar="N",
        help="requests that may wait; more are refused (default: %(default)s)",
    )
    add_record_option(parser)
    drafting = parser.add_argument_group("drafting")
    drafting.add_argument(
        "--drafter",
        action="append",
        choices=(NONE, *names()),
        help="what requests may choose from; may be repeated (default: all that can run); the default of a request is "
        "the first of hybrid, datastore and prompt-lookup that is there; callers name others "
        "(suffolk generate --worker URL --drafter eagle)",
    )
    add_draft_options(drafting)
    add_calibration_option(drafting)
    device = parser.add_argument_group("device")
    add_device_options(device)
    device.add_argument(
        "--passes",
        choices=("auto", "packed", "captured", "compiled"),
        default="auto",
        help="decoding passes: packed, of any shape; captured, of a few static shapes, which CUDA replays as graphs; or "
        "compiled, on a CPU, by torch and a C++ compiler: minutes at the first start, less later, because torch keeps what it "
        "compiled in TORCHINDUCTOR_CACHE_DIR (default: %(default)s, which captures on CUDA and packs elsewhere)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal says stop; returns 0."""
    from suffolk.serving.transport.config import ServerConfig
    from suffolk.serving.transport.server import run_until_signal

    logging.basicConfig(format="suffolk: %(message)s", level=logging.INFO)
    config = ServerConfig(**read_server_options(args, WORKER_PORT))
    require_threads(args)
    limits, max_nodes, chosen = read_limits(args), read_max_nodes(args), _drafters(args)
    if chosen == [NONE] and args.costs is not None:
        raise InvalidArgument(f"--costs {args.costs} is of no use with --drafter none; leave one of them out")
    check_range("--slots", args.slots, 1, 1024)
    check_range("--capacity", args.capacity, 2, 1 << 24)
    check_range("--queue", args.queue, 0, 4096)
    config.check()  # before a model is loaded
    require_costs(args.costs)
    require_record(args.record)
    with (
        kept_calibration(args.calibration) as calibration,
        opened_stores(args.datastore, args.deadline_ms, limits, args.model) as stores,
    ):
        name = Path(args.model).absolute().name
        target = replace(load_target(args, args.slots * args.capacity), name=name)  # callers must not learn the folder
        capacity = args.capacity
        if target.context_length is not None:
            capacity = min(capacity, target.context_length + rows_behind(max_nodes))
        _require_room(target, args.slots, capacity)

        from suffolk.serving.drafters.load import load_drafters, make_drafter
        from suffolk.serving.engine.costs.cost_store import find_costs
        from suffolk.serving.engine.loop.engine import Engine
        from suffolk.serving.replay.recorder import opened_recorder
        from suffolk.serving.worker.server import WorkerServer
        from suffolk.serving.worker.service import DecodeService

        wanted = read_drafter_config(args)
        models = load_drafters(target, wanted, args.slots, capacity, stores, limits, calibration)
        _require_room(target, args.slots, capacity, models)
        made = {name: make_drafter(name, target.vocab_size, stores, limits, models, calibration) for name in chosen}
        drafters = {name: drafter for name, drafter in made.items() if drafter is not None}
        costs = find_costs(target, args.slots, args.costs, args.passes).costs if drafters else None
        with (
            opened_recorder(args.record, target, args.model) as recorder,
            Engine(target, drafters, costs, args.slots, capacity, args.queue, args.passes) as engine,
        ):
            service = DecodeService(engine, name, max_nodes, recorder=recorder)
            LOG.info("%s", _facts(service))
            run_until_signal(WorkerServer(config, service))
    return 0


def _drafters(args: argparse.Namespace) -> list[str]:
    """Names of the drafters to load; InvalidArgument for one that cannot run."""
    chosen, loaded = chosen_drafters(args, (NONE, *names())), read_drafter_config(args).parts()
    run = {*chosen, *loaded} if "hybrid" in chosen else {*chosen}
    readers = sorted(name for name in run - {NONE} if find(name).reads_states)
    if args.passes == "compiled" and readers:
        raise InvalidArgument(
            f"--passes compiled gives no hidden states, which drafter {readers[0]} reads; leave its --head out, or use packed "
            "passes"
        )
    return chosen


def _require_room(target: Target, slots: int, capacity: int, models: Sequence[Drafter] = ()) -> None:
    """Raises ResourceExhausted if the cache would not fit beside those of ``models``: the system would kill the process later,
    without a word."""
    from suffolk.serving.engine.model import memory

    needed = memory.cache_bytes(target.model.config, slots * capacity, target.dtype.itemsize)
    if target.device.type == "cpu":  # where a cache takes its memory as texts fill it; elsewhere it is taken by now
        needed += sum(getattr(model, "cache_bytes", 0) for model in models)
    available = memory.available_memory(target.device)
    if needed > available:
        raise ResourceExhausted(
            f"--slots {slots} x --capacity {capacity}: the caches need {needed / GIB:.2f} GiB, and {target.device.type} has "
            f"{available / GIB:.2f} GiB available; lower one of them"
        )


def _facts(service: DecodeService) -> str:
    engine = service.engine
    others = [name for name in engine.drafters if name != service.default_drafter]
    drafters = ", ".join([f"{service.default_drafter} (default)", *others])
    return (
        f"model {service.model}, {engine.slots} slots x {engine.capacity} tokens, {engine.cache_bytes / GIB:.2f} GiB of cache, "
        f"queue of {engine.queue}, drafters {drafters}"
    )
