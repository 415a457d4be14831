"""Decode for many clients at once: gRPC suffolk.v1.DecodeService, and OpenAI's API with metrics and
health over HTTP on a second port.

The command prints one line when it takes requests: serving MODEL on grpc HOST:PORT, http HOST:PORT.
SIGTERM or Ctrl-C lets running requests finish within the grace period and ends with exit code 0; a
second signal ends the command at once. SIGHUP reads certificates and settings again.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from suffolk.cli.drafting import require_costs
from suffolk.cli.model import load_target
from suffolk.cli.output_file import kept_calibration, require_record
from suffolk.cli.server_options import SettingsReload, is_on, server_settings
from suffolk.cli.stores import opened_stores
from suffolk.cli.worker_options import EXAMPLES as EXAMPLES
from suffolk.cli.worker_options import Options
from suffolk.datastore.appendable import Appendable
from suffolk.datastore.errors import ResourceExhausted
from suffolk.datastore.retriever import Retriever
from suffolk.serving.clients.fanout.appendable import AppendableFanout
from suffolk.serving.clients.text_appender import TextAppender
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.load import load_drafters, make_drafter
from suffolk.serving.decoding.drafters.neural.tree_bounds import rows_behind
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.net.config import ServerConfig
from suffolk.serving.net.http_app import starting_page
from suffolk.serving.net.server import ignore_sighup, run_until_signal
from suffolk.serving.net.url import names_several
from suffolk.serving.open_store import open_appendable
from suffolk.serving.store.live_store.store import LiveStore
from suffolk.serving.worker.openai.errors import error_body
from suffolk.serving.worker.openai.origins import allow_origins, check_origins

if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.model.target import Target
    from suffolk.serving.worker.service import DecodeService

LOG = logging.getLogger("suffolk.worker")
GIB = 1 << 30
SWITCH_SECONDS = 0.0002
"""Longest time in seconds that a thread of Python keeps another thread waiting.

The step loop may wait at each operation of the model while other threads read requests. With three busy threads, a step of 40 ms
takes 1.9 s at Python's default of 5 ms, and 0.4 s at this value.
"""


def run(options: Options) -> None:
    """Serve until a signal stops it."""
    ignore_sighup()
    options.start_logs("suffolk-worker")
    server = _checked(options)
    sys.setswitchinterval(SWITCH_SECONDS)
    with (
        kept_calibration(options.calibration) as calibration,
        ExitStack() as starting,
        opened_memory(options.remember, options.model) as memory,
        _opened_datastores(options, memory) as stores,
    ):
        origins = allow_origins(options.cors_origin)
        page = starting_page(server.http, "loading the model", error_body, server.tls, origins)
        starting.enter_context(page)
        target = _load_model(options)
        drafters = _make_drafters(options, target, stores, calibration)
        with _opened_service(options, server, target, drafters, stores, memory) as service:
            _serve(options, server, service, starting)


def opened_memory(name: str | None, model: str) -> AbstractContextManager[Appendable | None]:
    """The live datastore of ``--remember``, or None. Raises the errors of ``open_appendable``.

    If ``name`` is the address of several servers, none of them needs to lead yet.
    """
    if name is None:
        return nullcontext()
    return AppendableFanout(name) if names_several(name) else open_appendable(name, model)


def require_room(target: Target, slots: int, capacity: int, models: Sequence[Drafter] = ()) -> None:
    """Raise ResourceExhausted if the cache does not fit into memory beside the caches of ``models``.

    Without this check the system would kill the process later.
    """
    from suffolk.serving.decoding.engine.model import memory

    needed = memory.cache_bytes(target.model.config, slots * capacity, target.dtype.itemsize)
    if target.device.type == "cpu":  # CPU caches take memory only as texts fill them; elsewhere it is already allocated
        needed += sum(getattr(model, "cache_bytes", 0) for model in models)
    available = memory.available_memory(target.device)
    if needed > available:
        raise ResourceExhausted(
            f"--slots {slots} x --capacity {capacity}: the caches need {needed / GIB:.2f} GiB, and {target.device.type} has "
            f"{available / GIB:.2f} GiB available; lower one of them"
        )


def _checked(options: Options) -> ServerConfig:
    """The settings of the server. Checks all that can be checked before a model is loaded."""
    server = ServerConfig(**options.server_fields())
    check_origins(options.cors_origin)
    options.limits()
    options.check()
    server.check()
    require_costs(options.costs)
    require_record(options.record)
    return server


def _opened_datastores(options: Options, memory: Appendable | None) -> AbstractContextManager[list[Retriever]]:
    """Open the datastores that drafters search. A ``memory`` on disk is one of them, and is already open."""
    live = memory if isinstance(memory, LiveStore) else None
    names = [name for name in options.datastore if live is None or name != options.remember]
    return opened_stores(names, options.deadline_ms, options.limits(), options.model, watch=True, live=live)


def _load_model(options: Options) -> Target:
    """Load the model under the name of its folder, because clients must not learn the path."""
    target = load_target(options.model, options, options.slots * options.capacity)
    require_room(target, options.slots, _capacity(options, target))
    return replace(target, name=Path(options.model).absolute().name)


def _make_drafters(
    options: Options, target: Target, stores: list[Retriever], calibration: Calibration
) -> dict[str, Drafter]:
    """Make the drafters that requests may name. Raises ResourceExhausted if their caches do not fit into memory."""
    limits, capacity = options.limits(), _capacity(options, target)
    models = load_drafters(target, options.drafter_config(), options.slots, capacity, stores, limits, calibration)
    require_room(target, options.slots, capacity, models)
    made = {
        name: make_drafter(name, target.vocab_size, stores, limits, models, calibration) for name in options.loaded()
    }
    return {name: drafter for name, drafter in made.items() if drafter is not None}


@contextmanager
def _opened_service(
    options: Options,
    server: ServerConfig,
    target: Target,
    drafters: Mapping[str, Drafter],
    stores: Sequence[Retriever],
    memory: Appendable | None,
) -> Iterator[DecodeService]:
    """Open the service with its engine. Texts that end while the engine closes are still recorded and remembered."""
    from suffolk.serving.decoding.engine.loop.engine import Engine
    from suffolk.serving.decoding.replay.recorder import opened_recorder
    from suffolk.serving.worker.call import RemotePolicy
    from suffolk.serving.worker.service import DecodeService

    costs = find_costs(target, options.slots, options.costs, options.pass_mode).costs if drafters else None
    capacity = _capacity(options, target)
    with (
        opened_recorder(options.record, target, options.model) as recorder,
        nullcontext() if memory is None else TextAppender(memory) as appender,
        Engine(
            target,
            drafters,
            costs,
            options.slots,
            capacity,
            options.queue,
            options.pass_mode,
            prefix_reuse=not options.no_prefix_reuse,
        ) as engine,
    ):
        traces = server.http is not None and is_on(options.playground, server, server.http)
        policy = RemotePolicy(options.typical_floor, options.share_learning, traces)
        service = DecodeService(
            engine,
            target.name,
            options.max_nodes,
            recorder=recorder,
            appender=appender,
            policy=policy,
            datastores=stores,
            names=options.served_model_name,
        )
        service.set_stream_interval(options.stream_interval)
        yield service


def _serve(options: Options, server: ServerConfig, service: DecodeService, starting: ExitStack) -> None:
    """Serve until a signal. First close ``starting``, whose page has answered at the HTTP port so far."""
    from suffolk.serving.worker.server import WorkerServer

    LOG.info("%s", _facts(service))
    running = WorkerServer(server, service, check_origins(options.cors_origin), options.tool_format, options.reasoning)
    live = server_settings(running) | {"stream_interval": service.set_stream_interval}
    running.reloads["the settings"] = SettingsReload(options, live)
    starting.close()
    gc.collect()
    gc.freeze()  # otherwise a collection of the objects of models and libraries would stop every stream for 0.2 s
    run_until_signal(running)


def _capacity(options: Options, target: Target) -> int:
    """The most tokens of a request that this model takes."""
    if target.context_length is None:
        return options.capacity
    return min(options.capacity, target.context_length + rows_behind(options.max_nodes))


def _facts(service: DecodeService) -> str:
    engine = service.engine
    others = [name for name in engine.drafters if name != service.default_drafter]
    drafters = ", ".join([f"{service.default_drafter} (default)", *others])
    return (
        f"model {service.model}, {engine.slots} slots x {engine.capacity} tokens, {engine.cache_bytes / GIB:.2f} GiB of cache, "
        f"queue of {engine.queue}, drafters {drafters}"
    )
