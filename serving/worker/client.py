"""A client of the worker: streams the steps of a generation. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc

from suffolk.datastore.arguments import check_deadline
from suffolk.datastore.checks import number, or_default, text, whole_within
from suffolk.datastore.errors import Field, Internal, InvalidArgument, Unavailable
from suffolk.datastore.retriever import MAX_NODES
from suffolk.serving.decoding.engine.loop.draft_options import DEFAULT_OPTIONS, DraftOptions
from suffolk.serving.decoding.engine.loop.prompt import Prompt
from suffolk.serving.decoding.engine.loop.stats import GenerationStats
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.sampling.log_probabilities import LogProbability
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.net.call_errors import call_error
from suffolk.serving.net.channel import PING_SECONDS, open_channel, parse_server_info
from suffolk.serving.net.proto import decode_pb2, decode_pb2_grpc
from suffolk.serving.net.url import WORKER_PORT, describe_url, parse_url
from suffolk.serving.worker import limits
from suffolk.serving.worker.settings import pack_settings
from suffolk.serving.worker.wire import pack_options, pack_prompt, unpack_step

INFO_DEADLINE = 5.0
"""Deadline of ``info``, in seconds."""
MAX_DEADLINE = 86_400.0
"""Longest deadline of ``generate``, in seconds."""
_KEEPALIVE_TIMEOUT = 10.0
"""Seconds without an acknowledgement after which the worker counts as lost."""


def connect_worker(url: str) -> WorkerClient:
    """A client of the worker at ``url``: grpc://HOST:PORT, grpcs://HOST:PORT?ca=FILE or grpc+unix:///PATH.

    The client connects at its first call.

    Raises:
        InvalidArgument: a malformed URL.
        NotFound, PermissionDenied: a TLS file is missing, or not readable.
    """
    parts = parse_url(url, WORKER_PORT)
    if parts.name or parts.deadline is not None:
        raise InvalidArgument(
            f"{url}: the URL of a worker has no name and no ", Field("deadline_ms"), "; end it with the port or socket"
        )
    channel = open_channel(parts, limits.MAX_REQUEST_BYTES, limits.MAX_REPLY_BYTES, _KEEPALIVE_TIMEOUT, PING_SECONDS)
    return WorkerClient(url, channel)


class WorkerClient:
    """A client of one worker. Thread-safe, and a context manager. ``connect_worker`` makes it."""

    def __init__(self, url: str, channel: grpc.Channel) -> None:
        self.url = url
        self._channel = channel
        self._stub = decode_pb2_grpc.DecodeServiceStub(channel)

    def generate(
        self,
        prompt: Prompt,
        settings: SamplingSettings | None = None,
        drafter: str | None = "",
        max_nodes: int | None = None,
        deadline: float | None = None,
        options: DraftOptions | None = None,
    ) -> RemoteGeneration:
        """Start a generation.

        Args:
            prompt: text to continue, (role, content) messages to answer, or token ids to continue.
            settings: None for greedy decoding of up to 256 tokens.
            drafter: empty for the worker's default; None or "none" for plain decoding.
            max_nodes: the most nodes of a draft tree; None for the worker's default.
            deadline: seconds until the worker cancels the generation, at most MAX_DEADLINE; None for no deadline.
            options: as in ``Engine.generate``.

        Raises:
            InvalidArgument, Unsupported: an argument cannot be sent. The first step raises the worker's errors.
        """
        request = pack_prompt(prompt)
        request.sampling.CopyFrom(pack_settings(or_default("settings", settings, SamplingSettings())))
        request.drafter = "none" if drafter is None else text("drafter", drafter)
        request.options.CopyFrom(pack_options(or_default("options", options, DEFAULT_OPTIONS)))
        if max_nodes is not None:
            request.max_nodes = whole_within("max_nodes", max_nodes, 1, MAX_NODES)
        if deadline is not None:
            deadline = number("deadline", deadline)
            check_deadline(deadline, MAX_DEADLINE)
        try:
            return RemoteGeneration(self.url, self._stub.Generate(request, timeout=deadline))
        except ValueError as error:  # gRPC: the channel is closed
            raise Unavailable(f"{self.url}: {error}; connect again") from None

    def info(self) -> dict[str, Any]:
        """The fields of ``GetWorkerInfoReply``, with the engine's statistics under "stats".

        Raises:
            Unavailable, DeadlineExceeded: the worker does not answer.
            Internal: the reply is malformed.
        """
        try:
            reply = self._stub.GetInfo(decode_pb2.GetWorkerInfoRequest(), timeout=INFO_DEADLINE)
        except grpc.RpcError as error:
            late = f"no answer within {INFO_DEADLINE:g} s; check whether the worker hangs, or correct the address"
            raise call_error(error, describe_url(self.url, WORKER_PORT), "worker", late) from None
        except ValueError as error:
            raise Unavailable(f"{self.url}: {error}; connect again") from None
        info = {field.name: getattr(reply, field.name) for field in reply.DESCRIPTOR.fields}
        info |= {"drafters": list(reply.drafters), "datastores": list(reply.datastores)}
        info["stats"] = parse_server_info(self.url, "worker", info.pop("stats_json"))
        return info

    def close(self) -> None:
        """Close the connection, which cancels running generations."""
        self._channel.close()

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteGeneration(Iterator[Step]):
    """Iterates over the steps as they arrive. For one reading thread; ``cancel`` is thread-safe.

    ``next`` raises the worker's errors: InvalidArgument, Unsupported, ResourceExhausted, DeadlineExceeded, Unavailable, Internal.
    A cancelled generation ends without an error.

    Attributes:
        tokens: tokens received so far.
        log_probabilities: log-probabilities of ``tokens``; empty unless ``logprobs`` is set.
        stats: the worker's statistics after the text has ended; empty until then.
    """

    def __init__(self, url: str, call: Any) -> None:
        self.tokens: list[int] = []
        self.log_probabilities: list[LogProbability] = []
        self.stats = GenerationStats()
        self._url = url
        self._call = call
        self._cancelled = False

    def __next__(self) -> Step:
        try:
            step, stats = unpack_step(next(self._call))
        except grpc.RpcError as error:
            if self._cancelled and error.code() is grpc.StatusCode.CANCELLED:
                raise StopIteration from None
            late = "the text was not finished within its deadline; allow more time or ask for fewer tokens"
            raise call_error(error, describe_url(self._url, WORKER_PORT), "worker", late) from None
        except InvalidArgument as error:
            raise Internal(f"{self._url}: the worker sent a malformed reply: {error}") from None
        self.tokens += step.tokens
        self.log_probabilities += step.log_probabilities
        self.stats = stats or self.stats
        return step

    def cancel(self) -> None:
        """Cancel the generation and free its slot within one step. No effect on an ended generation."""
        self._cancelled = True
        self._call.cancel()

    def close(self) -> None:
        """The same as ``cancel``, for ``contextlib.closing``."""
        self.cancel()
