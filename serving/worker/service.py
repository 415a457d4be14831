"""The worker without a transport: admission, limits, metrics, and calls of the engine."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, TypeVar

from suffolk.datastore.arguments import check_size
from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import Field, PermissionDenied, SuffolkError, Unavailable, Unsupported
from suffolk.datastore.limits import MAX_NAME
from suffolk.datastore.retriever import MAX_NODES, Retriever
from suffolk.datastore.version import __version__
from suffolk.serving.clients.text_appender import TextAppender
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.loop.prompt import encode_text, has_template
from suffolk.serving.decoding.engine.sampling.grammar_compiler import GrammarCompiler
from suffolk.serving.decoding.replay.recorder import Recorder
from suffolk.serving.decoding.replay.recording import FINISHED
from suffolk.serving.net.admission import AdmissionController
from suffolk.serving.net.identity import EVERY_TENANT, OPERATOR, Role, caller
from suffolk.serving.net.metrics import CallOutcome
from suffolk.serving.net.proto import decode_pb2
from suffolk.serving.net.quota import take_queries
from suffolk.serving.net.url import tenant_of
from suffolk.serving.worker import limits
from suffolk.serving.worker.call import GenerateCall, RemotePolicy
from suffolk.serving.worker.metrics import AppenderMetrics, WorkerMetrics
from suffolk.serving.worker.traces import Passages, find_passages

LOG = logging.getLogger("suffolk.worker")

DEFAULT_POLICY = RemotePolicy()
PREFERRED = ("hybrid", "datastore", "prompt-lookup")
"""Default drafters, best first."""
T = TypeVar("T")


class DecodeService:
    """Generates text for all clients of a worker. Thread-safe.

    Attributes:
        model: name of the model, without its folder.
        names: all names by which callers may call it; ``model`` is the first.
        default_drafter: drafter of requests that name none.
        max_nodes: the most nodes of a draft tree that a request may ask for; also the default.
        admission: admits one stream per slot and per queue place of the engine. A stream occupies its place until its
            last reply is read.
        slow_clients: cancels streams whose client does not read.
        stream_interval: least seconds between two replies of a stream, as in ``StepJoiner``; 0 sends a reply after every step.
        policy: what callers may ask for.
    """

    def __init__(
        self,
        engine: Engine,
        model: str,
        max_nodes: int = 64,
        slow_client_seconds: float = limits.SLOW_CLIENT_SECONDS,
        recorder: Recorder | None = None,
        appender: TextAppender | None = None,
        policy: RemotePolicy = DEFAULT_POLICY,
        datastores: Sequence[Retriever] = (),
        names: Sequence[str] = (),
    ) -> None:
        """Prepare to serve ``engine``, which the caller closes. Raises InvalidArgument if ``max_nodes`` is out of its range.

        Args:
            slow_client_seconds: seconds that a client may take to read one reply.
            recorder: records every finished text; the caller closes it.
            appender: appends every finished answer to a live datastore; the caller closes it.
            datastores: what drafters search, for the metrics and for passages.
            names: names of the model instead of ``model``.
        """
        check_range("max_nodes", max_nodes, 1, MAX_NODES)
        self.engine = engine
        self.names = tuple(names) or (model,)
        self.model = self.names[0]
        self.default_drafter = next((name for name in PREFERRED if name in engine.drafters), "none")
        self.max_nodes = max_nodes
        self.admission = AdmissionController(engine.slots + engine.queue, "--slots or queue")
        self.slow_clients = SlowClientTimeout(slow_client_seconds)
        self.metrics = WorkerMetrics(engine, self.admission, {each.name: each for each in datastores})
        self._datastores = tuple(datastores)
        self.stream_interval = 0.0
        self._recorder = recorder
        self._appender = appender
        if appender is not None:
            self.metrics.registry.register(AppenderMetrics(appender))
        self.policy = policy
        self._warned = False
        if engine.target.tokenizer is not None:
            encode_text(engine.target, "a")  # the first call initializes the tokenizer, which is not thread-safe
            with suppress(Unsupported):  # without the grammar library, requests with a grammar are refused
                # blocks all threads for a second, so load before requests come
                GrammarCompiler.of(engine.target).load()

    def set_stream_interval(self, milliseconds: float) -> None:
        """Change ``stream_interval`` for the streams that begin later."""
        self.stream_interval = milliseconds / 1000

    def start(self, call: GenerateCall) -> Generation:
        """Start one text of an admitted call.

        Raises:
            InvalidArgument: a field is out of its limits, or the prompt cannot be used.
            PermissionDenied: verification is ``typical`` and the policy has no floor for it, or the caller may not see traces.
            Unsupported: a field is not supported.
            ResourceExhausted: the request is too long for a slot, or the caller's tenant has no queries left.
            Unavailable: the engine has died or is closed.
        """
        check_size("drafter", len(call.drafter), MAX_NAME, "characters")
        max_nodes = self.max_nodes if call.max_nodes is None else call.max_nodes
        check_range("max_nodes", max_nodes, 1, self.max_nodes)
        drafter, settings = call.drafter or self.default_drafter, self.policy.apply(call.settings)
        if call.options.trace:
            self._require_traces(self._searched(call))
        take_queries(1)
        options = replace(call.options, datastores=self._searched(call), tenant=self._learning_tenant())
        return self.engine.generate(call.prompt, settings, drafter, max_nodes, options)

    def shows_sources(self, call: GenerateCall) -> bool:
        """Whether the caller may see the source of each token, because it is an admin of all datastores that the call
        searches."""
        return _administers(self._searched(call))

    def passages(
        self, tokens: Sequence[int], datastores: Sequence[str] | None, limit: int, following: int
    ) -> list[Passages]:
        """Where the end of ``tokens`` occurs, for each of ``datastores`` (None: all). Other arguments as for ``find_passages``.

        Raises:
            InvalidArgument: the caller may not read a datastore. The error is that of an unknown datastore.
            PermissionDenied: the caller may not see sources, or the policy shows no traces.
        """
        names = self.visible() if datastores is None else tuple(datastores)
        DraftOptions(datastores=names).require_known(self.visible())
        self._require_traces(names)
        take_queries(1)
        return [
            find_passages(store.select(names), tokens, self.engine.target.tokenizer, limit, following)
            for store in self._datastores
            if set(store.names) & set(names)
        ]

    def _require_traces(self, names: Sequence[str]) -> None:
        if not self.policy.traces:
            raise PermissionDenied(
                Field("trace"), ": this worker shows no draft trees; ask its operator for --playground on"
            )
        if not self.may_trace(names):
            raise PermissionDenied(
                Field("trace"),
                f": {caller().name} may not see the sources of {', '.join(names) or 'this worker'}; that needs the role admin "
                "there (with ",
                Field("share_learning"),
                ", in '*'); leave trace out",
            )

    def may_trace(self, datastores: Sequence[str]) -> bool:
        """Whether the caller may see draft trees from ``datastores``. With ``share_learning``, these trees have texts of all
        tenants."""
        everywhere = not self.policy.share_learning or caller().has(EVERY_TENANT, Role.ADMIN)
        return self.policy.traces and everywhere and _administers(datastores)

    def _searched(self, call: GenerateCall) -> tuple[str, ...]:
        """The datastores that a call searches. If the caller may not read a datastore, raises the InvalidArgument of an unknown
        datastore."""
        visible = self.visible()
        call.options.require_known(visible)
        return visible if call.options.datastores is None else call.options.datastores

    def visible(self) -> tuple[str, ...]:
        """Names of the datastores that the caller may read."""
        return tuple(name for name in self.engine.datastores if caller().has(tenant_of(name), Role.READ))

    def _learning_tenant(self) -> str:
        if self.policy.share_learning or caller() is OPERATOR:
            return ""
        return caller().tenant or EVERY_TENANT

    def record(self, generation: Generation, call: GenerateCall) -> None:
        """Record and remember a text that has ended. Failures are logged, and not reported to the client."""
        request = generation.request
        if self._appender is not None and generation.stats.finish in FINISHED and request.options.remember:
            self._appender.add(request.tokens[request.stats.prompt_tokens : request.length], request.options.group)
        if self._recorder is None:
            return
        try:
            self._recorder.add(generation, call.kind)
        except SuffolkError as error:
            self.metrics.recording_failures.inc()
            if not self._warned:
                self._warned = True
                LOG.warning("%s; some texts are not recorded", error)

    @staticmethod
    def require_end(generation: Generation, outcome: CallOutcome) -> None:
        """Raises Unavailable if ``generation`` was cancelled. All of its steps must have been read."""
        if generation.stats.finish == "cancelled":
            outcome.code = "CANCELLED"
            raise Unavailable("the generation was cancelled: the client is gone, or the worker is stopping")

    def info(self) -> decode_pb2.GetWorkerInfoReply:
        """Describe the worker. Its load and its statistics are for callers that may read in every tenant."""
        with self.metrics.measure_call("grpc", "GetInfo"):
            target, engine = self.engine.target, self.engine
            stats = engine.stats() if caller().has(EVERY_TENANT, Role.READ) else {}
            return decode_pb2.GetWorkerInfoReply(
                server_version=__version__,
                model=self.model,
                vocab_size=target.vocab_size,
                context_length=target.context_length or 0,
                has_chat_template=has_template(target),
                drafters=engine.drafters,
                datastores=self.visible(),
                default_drafter=self.default_drafter,
                slots=engine.slots,
                capacity=engine.capacity,
                queue=engine.queue,
                max_nodes=self.max_nodes,
                cache_bytes=engine.cache_bytes,
                running=stats.get("running", 0),
                waiting=stats.get("waiting", 0),
                stats_json=json.dumps(stats),
            )


def _administers(datastores: Sequence[str]) -> bool:
    """Whether the caller is an admin of all ``datastores``; without datastores, whether it is an admin of its tenant."""
    tenants = {tenant_of(name) for name in datastores}
    return all(caller().has(tenant, Role.ADMIN) for tenant in tenants or {caller().tenant or EVERY_TENANT})


class SlowClientTimeout:
    """Cancels a stream if its client takes longer than ``seconds`` to read one reply. Thread-safe.

    A client that does not read blocks its gRPC thread and counts as a call in flight. Its engine slot is free when the text
    has ended.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._sending: dict[object, tuple[float, Callable[[], Any]]] = {}

    def watch_stream(self, replies: Generator[T, None, None], cancel: Callable[[], Any]) -> Iterator[T]:
        """Yield ``replies``. Another thread calls ``cancel`` if a ``yield`` takes too long."""
        stream = object()
        with closing(replies):
            try:
                for reply in replies:
                    with self._lock:
                        self._sending[stream] = time.monotonic(), cancel
                    yield reply
                    self._remove(stream)
            finally:
                self._remove(stream)

    def run(self, stopping: threading.Event) -> None:
        """Check all streams periodically until ``stopping`` is set."""
        while not stopping.wait(self.seconds / 4):
            with self._lock:
                limit = time.monotonic() - self.seconds
                late = [cancel for since, cancel in self._sending.values() if since < limit]
            for cancel in late:
                cancel()

    def _remove(self, stream: object) -> None:
        with self._lock:
            self._sending.pop(stream, None)
