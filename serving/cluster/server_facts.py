"""Asks a store or a worker over gRPC for its version, generation and load."""

from __future__ import annotations

import json
from typing import Any, Literal

import grpc

from suffolk.datastore import limits
from suffolk.serving.net.call_errors import call_error
from suffolk.serving.net.channel import open_channel
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.net.url import parse_url
from suffolk.serving.worker.client import connect_worker

_DEADLINE = 5.0
_KEEPALIVE_TIMEOUT = 2.0


def server_facts(kind: Literal["store", "worker"], url: str) -> dict[str, Any]:
    """What the server says of itself.

    ``version``; of a store ``generations`` and ``replicas``, both by name, and ``tokens``; of a worker ``running``, ``waiting`` and
    ``slots``.

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
