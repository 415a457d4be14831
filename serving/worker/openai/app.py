"""HTTP routes of the worker, in addition to the pages of every server (serving/net/http_app.py).

POST /v1/chat/completions, /v1/completions,
     /v1/responses                            GET /v1/models, /v1/models/NAME
POST /tokenize, /detokenize                   GET /health, /ready, /version
POST /suffolk/passages                        GET /suffolk/info, and the page at / (with ``RemotePolicy.traces``)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from suffolk.datastore.arguments import check_size
from suffolk.datastore.errors import InvalidArgument, Unavailable
from suffolk.datastore.version import __version__
from suffolk.serving.decoding.engine.loop.prompt import encode_text, has_template
from suffolk.serving.net.admission import Readiness
from suffolk.serving.net.authenticator import Authenticator
from suffolk.serving.net.config import HostRules
from suffolk.serving.net.http_app import build_app
from suffolk.serving.net.http_body import BodyT, InvalidField, LargeBodies, parse_body
from suffolk.serving.net.playground.pages import page_routes
from suffolk.serving.worker import limits
from suffolk.serving.worker.openai.bodies import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    DraftFields,
    PassagesBody,
    TokenizeBody,
)
from suffolk.serving.worker.openai.chat import ChatAnswer
from suffolk.serving.worker.openai.completions import CompletionAnswer
from suffolk.serving.worker.openai.endpoint import GenerateEndpoint, read_json
from suffolk.serving.worker.openai.errors import error_body
from suffolk.serving.worker.openai.generate_calls import (
    encode_messages,
    max_length,
    read_chat,
    read_completion,
    require_model,
    shown_tools,
)
from suffolk.serving.worker.openai.origins import allow_origins
from suffolk.serving.worker.openai.reasoning import find_marks
from suffolk.serving.worker.openai.responses import ResponsesAnswer, read_response
from suffolk.serving.worker.openai.responses_body import ResponsesBody
from suffolk.serving.worker.openai.tool_format import AUTO, find_format
from suffolk.serving.worker.service import DecodeService

PAGE = "worker.html"


def build_openai_app(
    service: DecodeService,
    ready: Readiness,
    authenticator: Authenticator,
    hosts: HostRules,
    started: int,
    cors_origins: Sequence[str] = (),
    tool_format: str = AUTO,
    reasoning: str = AUTO,
) -> ASGIApp:
    """The application of ``service``.

    Args:
        ready: set while calls are accepted.
        authenticator: finds the caller of a request.
        hosts: which requests of browsers are answered.
        started: time of the start, in seconds.
        cors_origins: origins of web pages that may read answers; "*" for all.
        tool_format: format of the model's tool calls (``tool_format.py``).
        reasoning: marks of the model's reasoning (``reasoning.py``).

    Raises InvalidArgument: an unknown ``tool_format`` or ``reasoning``.
    """
    found = find_format(getattr(service.engine.target.tokenizer, "chat_template", None), tool_format)
    text_form: dict[str, Any] = {"tool_format": found, "marks": find_marks(service.engine.target.tokenizer, reasoning)}
    chat_reader, chat_answer = partial(read_chat, **text_form), partial(ChatAnswer, **text_form)
    bodies = LargeBodies()
    chat = GenerateEndpoint(service, "ChatCompletions", ChatBody, chat_reader, chat_answer, bodies)
    completions = GenerateEndpoint(service, "Completions", CompletionBody, read_completion, CompletionAnswer, bodies)
    response_reader, response_answer = partial(read_response, **text_form), partial(ResponsesAnswer, **text_form)
    responses = GenerateEndpoint(service, "Responses", ResponsesBody, response_reader, response_answer, bodies)

    def post(
        path: str, method: str, kind: type[BodyT], work: Callable[[DecodeService, BodyT], dict[str, Any]]
    ) -> Route:
        async def answer(request: Request) -> Response:
            data = await read_json(request, limits.body_bytes(service.engine.capacity))
            with service.metrics.measure_call("http", method), service.admission.admit_call():
                body = await bodies.run(len(data), lambda: parse_body(kind, data))
                return JSONResponse(await asyncio.to_thread(work, service, body))

        return Route(path, answer, methods=["POST"], name=method)

    routes = [
        Route("/v1/chat/completions", chat, methods=["POST"], name="ChatCompletions"),
        Route("/v1/completions", completions, methods=["POST"], name="Completions"),
        Route("/v1/responses", responses, methods=["POST"], name="Responses"),
        post("/tokenize", "Tokenize", TokenizeBody, tokenize),
        post("/detokenize", "Detokenize", DetokenizeBody, detokenize),
        *_read_only_routes(service, ready, started),
    ]
    if service.policy.traces:
        routes.append(post("/suffolk/passages", "Passages", PassagesBody, passages))
    pages = page_routes(PAGE) if service.policy.traces else []
    middleware = allow_origins(cors_origins)  # before access is checked: a browser's preflight request has no token
    return build_app(routes, service.metrics, ready, error_body, authenticator, hosts, middleware, pages)


def _read_only_routes(service: DecodeService, ready: Readiness, started: int) -> list[Route]:
    shared = {
        "object": "model",
        "created": started,
        "owned_by": "suffolk",
        "max_model_len": max_length(service, DraftFields()),
    }
    every = {name: {"id": name, **shared} for name in service.names}

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": list(every.values())})

    async def one_model(request: Request) -> Response:
        require_model(service, request.path_params["name"])
        return JSONResponse(every[request.path_params["name"]])

    async def health(request: Request) -> Response:
        if not ready.is_set():
            raise Unavailable(f"no calls are accepted: {ready.reason}")
        return Response()

    async def info(request: Request) -> Response:
        return JSONResponse(facts(service))

    async def version(request: Request) -> Response:
        return JSONResponse({"version": __version__})

    routes = [
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", one_model),
        Route("/health", health),
        Route("/ready", health),
        Route("/version", version),
    ]
    return [*routes, Route("/suffolk/info", info)] if service.policy.traces else routes


def facts(service: DecodeService) -> dict[str, Any]:
    """The worker as the caller may see it.

    ``sources``: whether the caller may see drafts from a datastore, and drafts that use no datastore.
    """
    engine = service.engine
    return {
        "version": __version__,
        "model": service.model,
        "has_chat_template": has_template(engine.target),
        "drafters": engine.drafters,
        "default_drafter": service.default_drafter,
        "max_nodes": service.max_nodes,
        "datastores": [{"name": name, "sources": service.may_trace([name])} for name in service.visible()],
        "sources": service.may_trace(()),
    }


def passages(service: DecodeService, body: PassagesBody) -> dict[str, Any]:
    """The passages of each datastore. Raises the errors of ``DecodeService.passages``."""
    return {"datastores": service.passages(body.tokens, body.datastores, body.limit, body.following)}


def tokenize(service: DecodeService, body: TokenizeBody) -> dict[str, Any]:
    """The tokens of a text or a conversation. Raises InvalidArgument."""
    require_model(service, body.model)
    target = service.engine.target
    if (body.prompt is None) == (body.messages is None):
        raise InvalidField("prompt", ": give either prompt or messages")
    if body.messages is not None:
        tokens = encode_messages(target, body.messages, shown_tools(body), body, limits.MAX_TOKENIZED)
    else:
        check_size("prompt", len(body.prompt or ""), limits.MAX_TEXT, "characters", "shorten it")
        tokens = encode_text(target, body.prompt or "", body.add_special_tokens is not False, limits.MAX_TOKENIZED)
    texts = target.tokenizer.convert_ids_to_tokens(tokens) if body.return_token_strs else None
    limit = max_length(service, DraftFields())
    return {"count": len(tokens), "max_model_len": limit, "tokens": tokens, "token_strs": texts}


def detokenize(service: DecodeService, body: DetokenizeBody) -> dict[str, Any]:
    """The text of token ids. Raises InvalidArgument."""
    require_model(service, body.model)
    target = service.engine.target
    check_size("tokens", len(body.tokens), limits.MAX_TOKENIZED, "tokens", "split them")
    if target.tokenizer is None:
        raise InvalidArgument(f"model {target.name} was loaded without a tokenizer")
    if body.tokens and not 0 <= min(body.tokens) <= max(body.tokens) < target.vocab_size:
        raise InvalidField(
            "tokens", f" has ids {min(body.tokens)}..{max(body.tokens)}; the vocabulary has {target.vocab_size}"
        )
    return {"prompt": target.tokenizer.decode(body.tokens)}
