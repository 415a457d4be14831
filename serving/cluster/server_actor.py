"""A Ray actor that runs one server as a child process on its node, and describes that server."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import grpc

from suffolk.build_index.on_ray.nodes import RayNode
from suffolk.datastore import limits
from suffolk.datastore.errors import DeadlineExceeded, ResourceExhausted, Unavailable
from suffolk.serving.cluster.node import node_folder, this_node
from suffolk.serving.cluster.published_topology import PublishedTopology, TopologyWriter
from suffolk.serving.cluster.server_spec import ServerSpec
from suffolk.serving.net.call_errors import call_error
from suffolk.serving.net.channel import open_channel
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.net.url import parse_url
from suffolk.serving.worker.client import connect_worker

THREADS = 4
"""Calls that the actor answers at the same time: ``wait``, ``stop``, and two others."""

_LOOK_SECONDS = 1.0
_DEADLINE = 5.0
_KEEPALIVE_TIMEOUT = 2.0
_ENDPOINT = re.compile(r"\b(grpc|http)s? (\S+?)(?:,|$)")
_TETHERED = "suffolk.serving.cluster.tethered"
_STDERR_LINES = 20
_LAST_SECONDS = 10.0
"""Seconds that a server gets to end after its grace, before it is killed."""


@dataclass(frozen=True)
class PlacedServer:
    """A running server: its node and its address."""

    node: RayNode
    address: ServerAddress


class ServerActor:
    """Runs the server of ``spec``. Its calls run in different threads."""

    def __init__(self, spec: ServerSpec) -> None:
        self._spec = spec
        self._process: ServerProcess | None = None
        self._placed: PlacedServer | None = None
        self._topology = TopologyWriter()
        self._waits = 0

    def start(self, topology: PublishedTopology) -> PlacedServer:
        """Write ``topology`` on this node, start the server, and wait until it takes requests.

        Raises:
            Unavailable, DeadlineExceeded: as ``ServerProcess.wait_ready``.
            ResourceExhausted: the cluster's folder cannot be written.
        """
        spec, node = self._spec, this_node()
        folder = node_folder(spec.folder, node)
        try:
            (folder / "logs").mkdir(parents=True, exist_ok=True)
            self._topology.write(topology, folder)
            words = spec.command(node, folder)
            self._process = ServerProcess(words, folder / "logs" / f"{spec.name}.log")
        except OSError as error:
            raise ResourceExhausted(f"{folder}: {error.strerror}; free disk space or choose another folder") from error
        self._placed = PlacedServer(node, self._process.wait_ready(spec.start_seconds))
        return self._placed

    def publish(self, topology: PublishedTopology) -> None:
        """Write ``topology`` on this node."""
        self._topology.publish(topology, node_folder(self._spec.folder, this_node()))

    def wait(self) -> str:
        """Wait until the server ends, and return why. A call of a restarted controller ends the earlier call."""
        if self._process is None:
            raise Unavailable(f"{self._spec.name} was not started")
        self._waits = own = self._waits + 1
        reason = ""
        while not reason and self._waits == own:  # else each ended controller would keep a thread
            reason = self._process.wait(_LOOK_SECONDS)
        return reason

    def stop(self) -> None:
        """Let running requests finish within the grace of the spec, and end the server."""
        if self._process is not None:
            self._process.stop(self._spec.grace)

    def describe(self) -> tuple[ServerSpec, PlacedServer | None]:
        """The spec, and where the server runs; None while it starts."""
        return self._spec, self._placed

    def facts(self, url: str) -> dict[str, Any]:
        """The facts that this server, at ``url``, reports. Raises the errors of ``server_facts``."""
        return server_facts(self._spec.kind, url)


def server_facts(kind: Literal["store", "worker"], url: str) -> dict[str, Any]:
    """The facts that a server reports about itself. All have ``version``. A store has ``generations`` and ``replicas``,
    both by name, and ``tokens``. A worker has ``running``, ``waiting`` and ``slots``.

    Raises Unavailable, DeadlineExceeded, PermissionDenied: the server does not answer, or not with this token. Others as
    ``open_channel``.
    """
    return _store_facts(url) if kind == "store" else _worker_facts(url)


def _store_facts(url: str) -> dict[str, Any]:
    channel = open_channel(parse_url(url), limits.MAX_REQUEST_BYTES, limits.MAX_REPLY_BYTES, _KEEPALIVE_TIMEOUT)
    try:
        stub = draft_pb2_grpc.DraftServiceStub(channel)
        reply = stub.GetInfo(draft_pb2.GetInfoRequest(), timeout=_DEADLINE)
    except grpc.RpcError as error:
        raise call_error(error, url.partition("?")[0], "draft service", f"no answer within {_DEADLINE:g} s") from None
    finally:
        channel.close()
    infos = {each.name: json.loads(each.info_json) for each in reply.datastores}
    return {
        "version": reply.server_version,
        "replicas": {name: info["replica"] for name, info in infos.items() if "replica" in info},
        "generations": {each.name: each.generation for each in reply.datastores},
        "tokens": sum(each.tokens for each in reply.datastores),
    }


def _worker_facts(url: str) -> dict[str, Any]:
    with connect_worker(url) as client:
        info = client.info()
    return {"version": info["server_version"]} | {key: info[key] for key in ("running", "waiting", "slots")}


@dataclass(frozen=True)
class ServerAddress:
    """Where a server listens, as HOST:PORT, and the id of its process."""

    grpc: str
    http: str
    pid: int


class ServerProcess:
    """A running server. Its stderr goes to ``log``. The server ends when this process ends, or earlier.

    ``stop`` and ``wait`` may run in different threads.
    """

    def __init__(self, words: Sequence[str], log: Path) -> None:
        """Start ``suffolk WORDS``. Raises OSError: the log cannot be written."""
        self._log = log.open("ab", buffering=0)
        self._last: deque[str] = deque(maxlen=_STDERR_LINES)
        self._process = subprocess.Popen(
            [sys.executable, "-m", _TETHERED, "suffolk", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._copying = threading.Thread(target=self._copy_log, name="log", daemon=True)
        self._copying.start()

    def wait_ready(self, seconds: float) -> ServerAddress:
        """Wait until the server takes requests.

        Raises:
            Unavailable: it has ended; the message holds its error.
            DeadlineExceeded: it has not started within ``seconds``. It is killed.
        """
        assert self._process.stdout is not None
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        line = self._process.stdout.readline().decode().strip()
        late = timer.finished.is_set()
        timer.cancel()
        if late:
            raise DeadlineExceeded(f"not started within {seconds:g} s, its start_seconds; see its log")
        if not line.startswith("serving "):
            raise Unavailable(self.wait())
        found = {kind: address for kind, address in _ENDPOINT.findall(line) if not address.startswith("unix:")}
        return ServerAddress(found["grpc"], found["http"], self._process.pid)

    def wait(self, seconds: float | None = None) -> str:
        """Wait until the server ends; returns why, in one line: its last error, or its exit code.

        Returns an empty text if it still runs after ``seconds``.
        """
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return ""
        self._copying.join()
        if code < 0:
            return f"ended by {signal.Signals(-code).name}"
        errors = [line for line in self._last if line.startswith("suffolk: ")]
        return errors[-1].removeprefix("suffolk: ") if code and errors else f"ended with exit code {code}"

    def stop(self, grace: float) -> None:
        """Let running requests finish, for at most ``grace`` seconds and a few more, and end the server."""
        self._process.terminate()
        try:
            self._process.wait(grace + _LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _copy_log(self) -> None:
        assert self._process.stderr is not None
        with self._log:
            for line in self._process.stderr:
                self._last.append(line.decode(errors="replace").strip())
                with suppress(OSError):  # a full disk must not stop reading: the server waits until its lines are read
                    self._log.write(line)
