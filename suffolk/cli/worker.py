"""Decode for many clients at once: gRPC suffolk.v1.DecodeService, and OpenAI's API with metrics and
health over HTTP on a second port.

The command prints one line when it takes requests: serving MODEL on grpc HOST:PORT, http HOST:PORT.
SIGTERM or Ctrl-C lets running requests finish within the grace period and ends with exit code 0; a
second signal ends the command at once. SIGHUP reads certificates and settings again.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from suffolk.cli.drafting import HYBRID, DrafterOptions, PlannerOptions, RetrievalOptions, require_costs
from suffolk.cli.kept_files import RECORD, CalibrationOptions, kept_calibration, require_record
from suffolk.cli.model import MODEL, DeviceOptions, load_target
from suffolk.cli.options.reload import SettingsReload, server_settings
from suffolk.cli.options.setting import REQUIRED, Configurable, option, rare
from suffolk.cli.server_options import ServerOptions, http_option, is_on, listen_option, switch_option
from suffolk.cli.stores import opened_stores
from suffolk.datastore.errors import InvalidArgument, ResourceExhausted
from suffolk.serving.draft_service.appendable import Appendable
from suffolk.serving.draft_service.text_appender import TextAppender, open_appendable
from suffolk.serving.drafters.neural.tree_bounds import rows_behind
from suffolk.serving.drafters.registry import NONE, find, names
from suffolk.serving.engine.checked_fields import Within
from suffolk.serving.live_store.store import LiveStore
from suffolk.serving.openai.tool_format import AUTO, FORMATS
from suffolk.serving.transport.url import WORKER_PORT, names_several

if TYPE_CHECKING:
    from suffolk.serving.engine.loop.drafter import Drafter
    from suffolk.serving.engine.model.target import Target
    from suffolk.serving.worker.service import DecodeService

LOG = logging.getLogger("suffolk.worker")
EXAMPLES = """
suffolk worker --model MODEL_FOLDER                         gRPC on 127.0.0.1:7710, HTTP on 127.0.0.1:7711
suffolk worker --model MODEL_FOLDER --datastore code/ --datastore grpc://127.0.0.1:7700/wiki --slots 16
suffolk worker --model MODEL_FOLDER --head HEAD_FOLDER --datastore code/
suffolk worker --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --slots 4
suffolk worker --model MODEL_FOLDER --datastore code/ --set recycle=true
suffolk worker --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --levels "prompt-lookup:4 > draft-model:6"
suffolk worker --model MODEL_FOLDER --listen 0.0.0.0:7710 --tls-cert server.pem --tls-key server.key --access access.toml
suffolk worker --model MODEL_FOLDER --record day.jsonl       every finished text, for 'suffolk replay'
suffolk worker --model MODEL_FOLDER --remember chat/          search earlier texts, and add every finished one
suffolk worker --model MODEL_FOLDER --http :8000 --access access.toml     OpenAI's API on 127.0.0.1:8000/v1
suffolk worker --config worker.toml
suffolk generate --worker grpc://127.0.0.1:7710 "Write a sort function."
curl http://127.0.0.1:7711/metrics"""
GIB = 1 << 30
SWITCH_SECONDS = 0.0002
"""Longest time that a thread of Python keeps another one waiting. The step loop waits at each operation of the model while other
threads read requests: with Python's default of 5 ms, three busy threads make a step of 40 ms last 1.9 s, with this 0.4 s."""


@dataclass(frozen=True, kw_only=True)
class RoomOptions(DeviceOptions):
    """How much a worker decodes at once."""

    GROUP = "model"
    model: str = option(REQUIRED, MODEL)
    slots: Annotated[int, Within(1, 1024)] = option(8, "requests decoded at once")
    capacity: Annotated[int, Within(2, 1 << 24)] = option(
        4096,
        "most tokens of a request (prompt, new tokens and largest draft tree); at most the model's context",
    )
    queue: Annotated[int, Within(0, 4096)] = rare(64, "most requests that wait; further requests are refused")
    pass_mode: str = rare(
        "auto",
        "kind of forward passes. 'packed': any shape; 'captured': a few static shapes, as CUDA graphs; 'compiled': on a CPU, by "
        "torch and a C++ compiler, which takes minutes at the first start; 'auto' is 'captured' on CUDA, else 'packed'",
        choices=("auto", "packed", "captured", "compiled"),
    )


@dataclass(frozen=True, kw_only=True)
class WorkerDrafterOptions(DrafterOptions):
    """Which drafters requests may choose from."""

    GROUP = "drafting"
    drafter: tuple[str, ...] = option(
        (),
        "a drafter that requests may name; may be repeated (default: all that can run). A request that names none gets the first "
        "available of hybrid, datastore and prompt-lookup",
        choices=(NONE, *names()),
        metavar="NAME",
    )


@dataclass(frozen=True, kw_only=True)
class Options(
    RoomOptions, ServerOptions, WorkerDrafterOptions, RetrievalOptions, PlannerOptions, CalibrationOptions, Configurable
):
    listen: tuple[str, ...] = listen_option(WORKER_PORT)
    http: str = http_option(WORKER_PORT + 1, "OpenAI's API, /metrics and /healthz")
    playground: str = switch_option(
        "web page at the HTTP address that shows drafts, and the draft trees and passages of datastores behind it"
    )
    cors_origin: tuple[str, ...] = rare((), "origin of web pages that may read answers, or * for all", metavar="ORIGIN")
    tool_format: str = rare(
        AUTO,
        "form in which the model writes tool calls; 'auto' is the form of its chat template",
        choices=(AUTO, *FORMATS),
    )
    stream_interval: Annotated[float, Within(0, 60_000)] = option(
        0.0,
        "least time between two packets of a stream; 0 sends one packet for each step, whose size shows the accepted tokens",
        metavar="MS",
    )
    typical_floor: Annotated[float, Within(0, 1)] = rare(
        0.0,
        "least probability, under the model's own distribution, of a token that verification 'typical' may accept; 0 refuses "
        "'typical', because its answers may reveal text of the datastores",
    )
    share_learning: bool = rare(
        False,
        "with --access: learn from the texts of all tenants together; response times may then reveal parts of them",
    )
    tls_client_ca: str | None = rare(
        None,
        "PEM certificate of the authority that must have signed the certificates of clients (mTLS)",
        metavar="FILE",
    )
    grace: Annotated[float, Within(0, 600)] = rare(
        30.0, "seconds that running requests may still take when the server stops", metavar="SECONDS"
    )
    record: Path | None = option(None, RECORD, group="serving")
    remember: str | None = option(
        None,
        "live datastore to which finished answers are appended in the background, and which is searched too: a URL, or a folder, "
        "which is made if it does not exist. The address of several servers is not searched, unless --datastore names it. "
        "Requests may refuse, and name a group",
        metavar="STORE",
        group="serving",
    )

    @property
    def datastore(self) -> tuple[str, ...]:
        """Folders and URLs of datastores, and ``remember``."""
        names = super().datastore
        if self.remember is None or self.remember in names or names_several(self.remember):
            return names
        return (*names, self.remember)


def run(options: Options) -> int:
    """Serve until a signal stops it; returns 0."""
    from suffolk.serving.openai.errors import error_body
    from suffolk.serving.openai.origins import check_origins
    from suffolk.serving.transport.config import ServerConfig
    from suffolk.serving.transport.server import ignore_sighup, run_until_signal
    from suffolk.serving.transport.starting_page import starting_page

    ignore_sighup()
    options.start_logs("suffolk-worker")
    server = ServerConfig(**options.server_fields())
    origins = check_origins(options.cors_origin)
    limits, chosen = options.limits(), _drafters(options)
    if chosen == [NONE] and options.costs is not None:
        raise InvalidArgument(f"costs {options.costs}: --drafter none does not use them; leave one of them out")
    if options.access and options.drafter_values.get("recycle") and not options.share_learning:
        raise InvalidArgument(
            "recycle: with --access, token recycling would learn from the texts of all tenants; leave it out, or add "
            "--set share_learning=true"
        )
    if options.access and options.remember and not options.share_learning:
        raise InvalidArgument(
            f"remember {options.remember}: with --access, one datastore would hold the texts of all tenants; leave it out, or add "
            "--set share_learning=true"
        )
    server.check()  # before a model is loaded
    sys.setswitchinterval(SWITCH_SECONDS)
    require_costs(options.costs)
    require_record(options.record)
    with (
        kept_calibration(options.calibration) as calibration,
        ExitStack() as starting,
        opened_memory(options.remember, options.model) as memory,
        opened_stores(
            [name for name in options.datastore if not (isinstance(memory, LiveStore) and name == options.remember)],
            options.deadline_ms,
            limits,
            options.model,
            watch=True,
            live=memory if isinstance(memory, LiveStore) else None,
        ) as stores,
    ):
        starting.enter_context(starting_page(server.http, "loading the model", error_body, server.tls))
        name = Path(options.model).absolute().name
        loaded = load_target(options.model, options, options.slots * options.capacity)
        target = replace(loaded, name=name)  # clients must not learn the folder
        capacity = options.capacity
        if target.context_length is not None:
            capacity = min(capacity, target.context_length + rows_behind(options.max_nodes))
        _require_room(target, options.slots, capacity)

        from suffolk.serving.drafters.load import load_drafters, make_drafter
        from suffolk.serving.engine.costs.cost_store import find_costs
        from suffolk.serving.engine.loop.engine import Engine
        from suffolk.serving.openai.server import OpenAIServer
        from suffolk.serving.replay.recorder import opened_recorder
        from suffolk.serving.worker.remote_policy import RemotePolicy
        from suffolk.serving.worker.service import DecodeService

        config = options.drafter_config()
        models = load_drafters(target, config, options.slots, capacity, stores, limits, calibration)
        _require_room(target, options.slots, capacity, models)
        made = {name: make_drafter(name, target.vocab_size, stores, limits, models, calibration) for name in chosen}
        drafters = {name: drafter for name, drafter in made.items() if drafter is not None}
        costs = find_costs(target, options.slots, options.costs, options.pass_mode).costs if drafters else None
        with (
            opened_recorder(options.record, target, options.model) as recorder,
            nullcontext() if memory is None else TextAppender(memory) as appender,
            Engine(target, drafters, costs, options.slots, capacity, options.queue, options.pass_mode) as engine,
        ):
            traces = server.http is not None and is_on(options.playground, server, server.http)
            policy = RemotePolicy(options.typical_floor, options.share_learning, traces)
            service = DecodeService(
                engine, name, options.max_nodes, recorder=recorder, appender=appender, policy=policy, datastores=stores
            )
            service.set_stream_interval(options.stream_interval)
            LOG.info("%s", _facts(service))
            running = OpenAIServer(server, service, origins, options.tool_format)
            live = server_settings(running) | {"stream_interval": service.set_stream_interval}
            running.reloads["the settings"] = SettingsReload(options, live)
            starting.close()
            run_until_signal(running)
    return 0


@contextmanager
def opened_memory(name: str | None, model: str) -> Iterator[Appendable | None]:
    """The live datastore of ``--remember``, or None. Raises as ``open_appendable``.

    Of several servers, none needs to lead yet.
    """
    if name is None:
        yield None
        return
    from suffolk.serving.fanout.appendable import connect_to_append

    with connect_to_append(name) if names_several(name) else open_appendable(name, model) as store:
        yield store


def _drafters(options: Options) -> list[str]:
    """Names of the drafters to load. Raises InvalidArgument: one of them cannot run."""
    chosen, loaded = options.chosen((NONE, *names())), options.drafter_config().parts()
    run = {*chosen, *loaded} if HYBRID in chosen else {*chosen}
    readers = sorted(name for name in run - {NONE} if find(name).reads_states)
    if options.pass_mode == "compiled" and readers:
        raise InvalidArgument(
            f"pass_mode compiled: its passes give no hidden states, which drafter {readers[0]} reads; leave it out, or use packed "
            "passes"
        )
    return chosen


def _require_room(target: Target, slots: int, capacity: int, models: Sequence[Drafter] = ()) -> None:
    """Raises ResourceExhausted if the cache does not fit beside those of ``models``.

    Without this check the system would kill the process later.
    """
    from suffolk.serving.engine.model import memory

    needed = memory.cache_bytes(target.model.config, slots * capacity, target.dtype.itemsize)
    if target.device.type == "cpu":  # CPU caches take memory only as texts fill them; elsewhere it is already allocated
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
