"""What the worker's page asks beside OpenAI's API: facts about the worker, and passages of its datastores."""

from __future__ import annotations

from typing import Any

from suffolk.datastore.version import __version__
from suffolk.serving.decoding.engine.loop.prompt import has_template
from suffolk.serving.worker.openai.schema import PassagesBody
from suffolk.serving.worker.service import DecodeService

PAGE = "worker.html"


def facts(service: DecodeService) -> dict[str, Any]:
    """The worker as the caller may see it.

    ``sources``: whether the caller may see drafts from a datastore, and drafts without any.
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
    """The passages of each datastore. Raises as ``DecodeService.passages``."""
    return {"datastores": service.passages(body.tokens, body.datastores, body.limit, body.following)}
