"""The gRPC methods of the worker. Each stream has a thread, which sleeps while the engine's thread works."""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.proto import decode_pb2, decode_pb2_grpc
from suffolk.serving.transport.grpc_server import abort_call
from suffolk.serving.worker.service import DecodeService


class DecodeServicer(decode_pb2_grpc.DecodeServiceServicer):
    """Passes protobuf messages to ``DecodeService``."""

    def __init__(self, service: DecodeService) -> None:
        self._service = service

    def Generate(
        self, request: decode_pb2.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[decode_pb2.GenerateReply]:
        try:
            replies = self._service.generate(request, context.add_callback)
            yield from self._service.slow_clients.watch_stream(replies, context.cancel)
        except SuffolkError as error:
            abort_call(context, error)

    def GetInfo(
        self, request: decode_pb2.GetWorkerInfoRequest, context: grpc.ServicerContext
    ) -> decode_pb2.GetWorkerInfoReply:
        try:
            return self._service.info()
        except SuffolkError as error:
            abort_call(context, error)
