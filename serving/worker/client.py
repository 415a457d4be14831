"""A worker, for Python programs: replies as they come, with a way to stop them. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc

from suffolk.datastore.errors import Internal, InvalidArgument, Unavailable
from suffolk.serving.engine.loop.checks import number, text, whole_number
from suffolk.serving.engine.loop.prompt import Prompt
from suffolk.serving.engine.loop.stats import GenerationStats
from suffolk.serving.engine.sampling.log_probabilities import LogProbability
from suffolk.serving.engine.sampling.settings import SamplingSettings, settings_or_default
from suffolk.serving.proto import decode_pb2, decode_pb2_grpc
from suffolk.serving.transport.call_errors import call_error
from suffolk.serving.transport.channel import open_channel
from suffolk.serving.transport.limits import MAX_NODES, PING_SECONDS, check_deadline
from suffolk.serving.transport.server_info import read_facts
from suffolk.serving.transport.url import WORKER_PORT, describe_url, parse_url
from suffolk.serving.worker import limits
from suffolk.serving.worker.settings import pack_settings
from suffolk.serving.worker.wire import Reply, pack_prompt, unpack_reply

INFO_DEADLINE = 5.0
"""Seconds for facts."""
MAX_DEADLINE = 86_400.0
"""Seconds for a text; without a deadline it may take any time."""
_SILENCE = 10.0
"""Seconds without a sign of life on the connection, while one is due, before the worker counts as lost."""


def connect_worker(url: str) -> WorkerClient:
    """The worker at ``url``: grpc://HOST:PORT, grpcs://HOST:PORT?ca=FILE or grpc+unix:///PATH. It is dialled at the first call.

    Raises:
        InvalidArgument: not such a URL. NotFound, PermissionDenied: a TLS file cannot be read.
    """
    parts = parse_url(url, WORKER_PORT)
    if parts.name or parts.deadline is not None:
        raise InvalidArgument(
            f"{url}: a worker's URL ends with its port or socket; leave out what names a datastore or a deadline"
        )
    channel = open_channel(parts, limits.MAX_REQUEST_BYTES, limits.MAX_REPLY_BYTES, _SILENCE, PING_SECONDS)
    return WorkerClient(url, channel)


class WorkerClient:
    """One worker. Thread-safe; a context manager that closes itself. Made by ``connect_worker``."""

    def __init__(self, url: str, channel: grpc.Channel) -> None:
        self.url = url
        self._channel = channel
        self._stub = decode_pb2_grpc.DecodeServiceStub(channel)

    def generate(
        self,
        prompt: Prompt,
        settings: SamplingSettings | None = None,
        drafter: str = "",
        max_nodes: int | None = None,
        deadline: float | None = None,
        request_class: str = "",
    ) -> RemoteGeneration:
        """Start a generation.

        Args:
            prompt: a text to continue, a conversation of (role, content) messages to answer, or token ids.
            settings: None for greedy decoding of up to 256 tokens.
            drafter: empty for the worker's default, "none" for plain decoding.
            max_nodes: largest draft tree; None for the worker's.
            deadline: seconds until the worker gives up, above 0 and at most MAX_DEADLINE; None for as long as it takes.
            request_class: what kind of request it is; see ``Engine.generate``.

        Raises:
            InvalidArgument, Unsupported: what cannot be sent. What the worker refuses is raised by the first reply.
        """
        request = pack_prompt(prompt)
        request.sampling.CopyFrom(pack_settings(settings_or_default(settings)))
        if not isinstance(drafter, str):
            raise InvalidArgument(f"drafter is of type {type(drafter).__name__}; give the name of one of the worker's")
        request.drafter, request.request_class = drafter, text("request_class", request_class)
        if max_nodes is not None:
            max_nodes = whole_number("max_nodes", max_nodes)
            limits.check_nodes(max_nodes, MAX_NODES)
            request.max_nodes = max_nodes
        if deadline is not None:
            deadline = number("deadline", deadline)
            check_deadline(deadline, MAX_DEADLINE)
        try:
            return RemoteGeneration(self.url, self._stub.Generate(request, timeout=deadline))
        except ValueError as error:  # what gRPC says of a closed channel
            raise Unavailable(f"{self.url}: {error}; connect again") from None

    def info(self) -> dict[str, Any]:
        """Facts about the worker, and under "stats" what it has done so far.

        Raises:
            Unavailable, DeadlineExceeded: nobody answers. Internal: the numbers it sends are damaged.
        """
        try:
            reply = self._stub.GetInfo(decode_pb2.GetWorkerInfoRequest(), timeout=INFO_DEADLINE)
        except grpc.RpcError as error:
            late = f"no answer within {INFO_DEADLINE:g} s; see whether the worker hangs, or correct the address"
            raise call_error(error, describe_url(self.url, WORKER_PORT), "worker", late) from None
        except ValueError as error:
            raise Unavailable(f"{self.url}: {error}; connect again") from None
        facts = {field.name: getattr(reply, field.name) for field in reply.DESCRIPTOR.fields}
        facts["drafters"] = list(reply.drafters)
        facts["stats"] = read_facts(self.url, "worker", facts.pop("stats_json"))
        return facts

    def close(self) -> None:
        """Hang up: what runs ends."""
        self._channel.close()

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteGeneration(Iterator[Reply]):
    """Iterate over it to get the replies as they come. One reader; ``cancel`` from any thread.

    Raises, from ``next``, what the worker answered: InvalidArgument, Unsupported, ResourceExhausted, DeadlineExceeded,
    Unavailable, Internal. A generation that ``cancel`` ended just stops.

    Attributes:
        tokens: those that came so far.
        log_probabilities: of ``tokens``, if ``logprobs`` was set; else empty.
        stats: the worker's numbers once the text has ended; until then empty.
    """

    def __init__(self, url: str, call: Any) -> None:
        self.tokens: list[int] = []
        self.log_probabilities: list[LogProbability] = []
        self.stats = GenerationStats()
        self._url = url
        self._call = call
        self._cancelled = False

    def __next__(self) -> Reply:
        try:
            reply = unpack_reply(next(self._call))
        except grpc.RpcError as error:
            if self._cancelled and error.code() is grpc.StatusCode.CANCELLED:
                raise StopIteration from None
            late = "the text was not done within its deadline; allow more time or ask for fewer tokens"
            raise call_error(error, describe_url(self._url, WORKER_PORT), "worker", late) from None
        except InvalidArgument as error:
            raise Internal(f"{self._url}: the worker sent a bad reply: {error}") from None
        self.tokens += reply.tokens
        self.log_probabilities += reply.log_probabilities
        self.stats = reply.stats or self.stats
        return reply

    def cancel(self) -> None:
        """End it: the worker's slot is free within one step. Does nothing once it has ended."""
        self._cancelled = True
        self._call.cancel()

    def close(self) -> None:
        """The same as ``cancel``, for ``contextlib.closing``."""
        self.cancel()
