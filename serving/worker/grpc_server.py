"""The worker over gRPC, with the standard health and reflection services.

A thread per stream, as many as the engine has slots and places in its queue: a thread sleeps until its step comes, and the
engine's own thread does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import grpc
from grpc_health.v1 import health

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.proto import decode_pb2, decode_pb2_grpc
from suffolk.serving.transport.grpc_server import build_grpc_server
from suffolk.serving.transport.status import error_text, grpc_code
from suffolk.serving.worker import limits
from suffolk.serving.worker.service import Service

SERVICE_NAME = decode_pb2.DESCRIPTOR.services_by_name["DecodeService"].full_name


def build_server(service: Service) -> tuple[grpc.Server, health.HealthServicer]:
    """A server that is not yet bound or started, and its health service."""
    return build_grpc_server(
        SERVICE_NAME,
        partial(decode_pb2_grpc.add_DecodeServiceServicer_to_server, Servicer(service)),
        service.admission.places,
        limits.MAX_REQUEST_BYTES,
        limits.MAX_REPLY_BYTES,
    )


class Servicer(decode_pb2_grpc.DecodeServiceServicer):
    """Messages in, messages out; the work is done by ``Service``."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def Generate(
        self, request: decode_pb2.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[decode_pb2.GenerateReply]:
        try:
            replies = self._service.generate(request, _on_hang_up(context))
            yield from self._service.patience.send(replies, context.cancel)
        except SuffolkError as error:
            context.abort(grpc_code(error), error_text(error))

    def GetInfo(
        self, request: decode_pb2.GetWorkerInfoRequest, context: grpc.ServicerContext
    ) -> decode_pb2.GetWorkerInfoReply:
        try:
            return self._service.info()
        except SuffolkError as error:
            context.abort(grpc_code(error), error_text(error))


def _on_hang_up(context: grpc.ServicerContext) -> Callable[[Callable[[], None]], bool]:
    return context.add_callback  # called at the end of every call, also a good one: cancelling does nothing then
