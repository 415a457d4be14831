"""Fields of OpenAI's, vLLM's and llama.cpp's requests that this worker does not act on.

A field that would change the answer is refused, unless its value asks for nothing. A name that is nearly that of a known field is
refused too. Other unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from suffolk.serving.transport.http_body import InvalidField

IGNORED = frozenset(
    (
        *("metadata", "model_id", "models", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "service_tier", "store", "user"),  # OpenAI
        *("cache_salt", "data_parallel_rank", "include_reasoning", "kv_transfer_params"),
        *("priority", "request_id", "spaces_between_special_tokens"),  # vLLM
        *("cache_prompt", "id_slot", "n_cache_reuse", "parse_tool_calls", "reasoning_format", "slot_id"),  # llama.cpp
    )
)
"""Fields without effect on the text."""
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "modalities": (["text"],),
    "moderation": (),
    "verbosity": ("medium",),
    "web_search_options": (),
    "include_obfuscation": (),  # OpenAI
    "best_of": (1,),
    "echo": (),
    "suffix": (),
    "prompt": (),
    "input": (),
    "instructions": (),
    "messages": (),
    "max_output_tokens": (),
    "function_call": ("none", "auto"),
    "functions": (),
    "tool_choice": ("none", "auto"),
    "tools": (),
    "top_logprobs": (),  # of another path
    "allowed_token_ids": (),
    "chat_template": (),
    "documents": (),
    "early_stopping": (),
    "guided_decoding_backend": ("auto", "guidance"),
    "guided_whitespace_pattern": (),
    "length_penalty": (1,),
    "logits_processors": (),
    "media_io_kwargs": (),
    "mm_processor_kwargs": (),
    "repetition_detection": (),
    "return_token_ids": (),
    "structural_tag": (),
    "thinking_token_budget": (),
    "use_beam_search": (),
    "vllm_xargs": (),  # vLLM
    "dry_allowed_length": (2,),
    "dry_base": (1.75,),
    "dry_multiplier": (),
    "dry_penalty_last_n": (-1,),
    "dry_sequence_breakers": (["\n", ":", '"', "*"],),
    "dynatemp_exponent": (1,),
    "dynatemp_range": (),
    "lora": (),
    "min_keep": (),
    "mirostat": (),
    "mirostat_eta": (0.1,),
    "mirostat_tau": (5,),
    "n_indent": (),
    "n_keep": (),
    "n_predict": (-1,),
    "n_probs": (),
    "penalize_nl": (),
    "post_sampling_probs": (),
    "repeat_last_n": (64, -1),
    "repeat_penalty": (1,),
    "response_fields": (),
    "return_progress": (),
    "return_tokens": (),
    "samplers": (),
    "t_max_predict_ms": (-1,),
    "tfs_z": (1,),
    "thinking_forced_open": (),
    "timings_per_token": (),
    "top_n_sigma": (-1,),
    "typical_p": (1,),
    "xtc_probability": (),
    "xtc_threshold": (0.1, 0.5),  # llama.cpp
}
"""Field that is refused -> values beside null, false, 0 and empty ones that ask for nothing."""
_INSTEAD = {
    "function_call": "/v1/chat/completions",
    "functions": "/v1/chat/completions",
    "input": "messages, or /v1/responses",
    "instructions": "a message of the role system, or /v1/responses",
    "max_output_tokens": "max_tokens",
    "messages": "/v1/chat/completions",
    "prompt": "messages, or /v1/completions",
    "tool_choice": "/v1/chat/completions",
    "tools": "/v1/chat/completions",
    "top_logprobs": "logprobs with a number",
    "n_predict": "max_tokens",
    "n_probs": "logprobs",
    "repeat_penalty": "repetition_penalty",
    "return_tokens": "return_tokens_as_token_ids with logprobs",
}
_EMPTY_ACTS = ("guided_whitespace_pattern",)
"""Fields whose empty text asks for something: JSON without white space."""
_ALIKE = 0.8
"""Least similarity of a misspelled name, as difflib counts it."""


def check_extra(path: str, extra: Mapping[str, Any], fields: Iterable[str]) -> None:
    """Raises InvalidField for the first field of ``extra`` that must not be ignored.

    Args:
        path: path of the object in the request, with a dot at its end; empty for the request itself.
        extra: the fields that the object does not have, by name.
        fields: the names of the fields that the object has.
    """
    for name, value in extra.items():
        if name in IGNORED or (not value and not (name in _EMPTY_ACTS and value == "")):
            continue
        if name in _NEUTRAL:
            if value not in _NEUTRAL[name]:
                advice = f"use {_INSTEAD[name]}" if name in _INSTEAD else "leave it out"
                raise InvalidField(path + name, f": this worker does not support it; {advice}")
        elif near := get_close_matches(name, [*fields, *IGNORED, *_NEUTRAL], 1, _ALIKE):
            raise InvalidField(path + name, f": unknown field; did you mean {near[0]}?")


def is_known(name: str) -> bool:
    """Whether a field that the worker does not have is one of another server."""
    return name in IGNORED or name in _NEUTRAL
