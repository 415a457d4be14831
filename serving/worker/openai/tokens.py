"""/tokenize and /detokenize, as in vLLM."""

from __future__ import annotations

from typing import Any

from suffolk.datastore.arguments import check_size
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.loop.prompt import encode_text
from suffolk.serving.net.http_body import InvalidField
from suffolk.serving.worker import limits
from suffolk.serving.worker.openai.calls import encode_messages, max_length, require_model
from suffolk.serving.worker.openai.schema import DetokenizeBody, DraftFields, TokenizeBody
from suffolk.serving.worker.openai.tool_choice import read_tool_choice
from suffolk.serving.worker.service import DecodeService


def tokenize(service: DecodeService, body: TokenizeBody) -> dict[str, Any]:
    """The tokens of a text or a conversation. Raises InvalidArgument."""
    require_model(service, body.model)
    target = service.engine.target
    if (body.prompt is None) == (body.messages is None):
        raise InvalidField("prompt", ": give either prompt or messages")
    if body.messages is not None:
        read_tool_choice(body.tools, None)
        tokens = encode_messages(target, body.messages, body.tools, body, limits.MAX_TOKENIZED)
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
