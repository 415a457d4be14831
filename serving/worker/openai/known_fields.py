"""Fields of other servers' requests that this worker does not act on.

A field that would change the answer is refused, unless its value asks for nothing. A name that is nearly that of a known field is
refused too. Other unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from suffolk.serving.net.http_body import InvalidField

IGNORED = frozenset(
    (
        *("metadata", "model_id", "models", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "service_tier", "store", "user"),  # OpenAI
        *("cache_salt", "data_parallel_rank", "include_reasoning", "kv_transfer_params"),
        *("priority", "request_id", "spaces_between_special_tokens"),  # vLLM
        *("cache_prompt", "id_slot", "n_cache_reuse", "preserved_tokens", "reasoning_format", "slot_id"),  # llama.cpp
        # Settings of samplers, each of which has a field that turns it on and is refused.
        *("adaptive_decay", "dry_allowed_length", "dry_base", "dry_penalty_last_n", "dry_sequence_breakers"),
        *("dynatemp_exponent", "dynatemp_high", "dynatemp_low", "mirostat_eta", "mirostat_tau", "smoothing_curve"),
        "xtc_threshold",
    )
)
"""Fields without effect on the text."""
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "modalities": (["text"],),
    "moderation": (),
    "verbosity": ("medium",),
    "web_search_options": (),
    "include_obfuscation": (),
    "extra_body": (),  # OpenAI, the last one of its client, which sends the fields in it as fields of the request
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
    "add_special_tokens": (True,),
    "allowed_token_ids": (),
    "chat_template": (),
    "chat_template_kwargs": (),
    "continue_final_message": (),
    "documents": (),
    "early_stopping": (),
    "guided_decoding_backend": ("auto", "guidance"),
    "guided_json_object": (),
    "guided_whitespace_pattern": (),
    "length_penalty": (1,),
    "logits_processors": (),
    "logprob_token_ids": (),
    "media_io_kwargs": (),
    "mm_processor_kwargs": (),
    "prompt_embeds": (),
    "repetition_detection": (),
    "return_token_ids": (),
    "structural_tag": (),
    "thinking_token_budget": (),
    "use_beam_search": (),
    "vllm_xargs": (),  # vLLM
    "adaptive_target": (-1,),
    "content": (),
    "dry_multiplier": (),
    "dynatemp_range": (),
    "enable_thinking": (),
    "grammar_lazy": (),
    "grammar_triggers": (),
    "image_data": (),
    "lora": (),
    "min_keep": (),
    "mirostat": (),
    "n_cmpl": (1,),
    "n_discard": (),
    "n_indent": (),
    "n_keep": (),
    "n_predict": (-1,),
    "n_probs": (),
    "parse_tool_calls": (True,),
    "penalize_nl": (),
    "post_sampling_probs": (),
    "reasoning_budget": (-1,),
    "reasoning_in_content": (),
    "repeat_last_n": (64, -1),
    "repeat_penalty": (1,),
    "response_fields": (),
    "return_progress": (),
    "return_tokens": (),
    "samplers": (),
    "t_max_predict_ms": (-1,),
    "tfs_z": (1,),
    "thinking_budget_tokens": (-1,),
    "thinking_forced_open": (),
    "timings_per_token": (),
    "top_n_sigma": (-1,),
    "typical_p": (1,),
    "xtc_probability": (),  # llama.cpp
    "adapter_id": (),
    "do_sample": (True,),
    "ebnf": (),
    "format": (),
    "generation_config": (),
    "inputs": (),
    "lora_path": (),
    "max_length": (),
    "max_new_tokens": (),
    "num_predict": (-1,),
    "options": (),
    "parameters": (),
    "regex": (),
    "sampling_params": (),
    "stop_regex": (),
    "stop_sequences": (),
    "system": (),
    "think": (),  # SGLang, TGI, Ollama and Anthropic
    "enable_search": (),
    "plugins": (),
    "random_seed": (),
    "reasoning": (),
    "safe_prompt": (),
    "search_parameters": (),
    "thinking": (),
    "thinking_budget": (),  # DashScope, DeepSeek, Mistral, OpenRouter and xAI
    "contents": (),
    "generationConfig": (),
    "systemInstruction": (),
    "system_instruction": (),  # Gemini
    "ban_eos_token": (),
    "banned_strings": (),
    "custom_token_bans": (),
    "dynamic_temperature": (),
    "encoder_repetition_penalty": (1,),
    "epsilon_cutoff": (),
    "eta_cutoff": (),
    "grammar_string": (),
    "guidance_scale": (1,),
    "min_length": (),
    "mirostat_mode": (),
    "negative_prompt": (),
    "no_repeat_ngram_size": (),
    "nsigma": (),
    "num_beams": (1,),
    "penalty_alpha": (),
    "rep_pen": (1,),
    "rep_pen_range": (-1,),
    "repetition_penalty_range": (-1,),
    "sampler_seed": (-1,),
    "skew": (),
    "smoothing_factor": (),
    "sampler_order": (),
    "sampler_priority": (),
    "stop_sequence": (),
    "stopping_strings": (),
    "temperature_last": (),
    "tfs": (1,),
    "top_a": (),
    "typical": (1,),  # text-generation-webui, KoboldCpp and TabbyAPI
}
"""Field that is refused -> values beside null, false, 0 and empty ones that ask for nothing."""
_MEANINGFUL = frozenset(
    (
        "add_special_tokens",
        "allowed_token_ids",
        "do_sample",
        "enable_thinking",
        "guided_decoding_backend",
        "guided_whitespace_pattern",
    )
    + (
        "n_predict",
        "parse_tool_calls",
        "reasoning_budget",
        "samplers",
        "thinking_budget_tokens",
        "thinking_token_budget",
    )
    + ("random_seed", "sampler_seed", "tfs", "tfs_z", "think", "thinking_budget", "typical", "typical_p")
)
"""Fields of which false, 0 and empty ones ask for something too."""
_INSTEAD = {
    "ban_eos_token": "ignore_eos",
    "banned_strings": "bad_words",
    "custom_token_bans": "logit_bias",
    "chat_template_kwargs": "/v1/chat/completions",
    "content": "prompt, or messages",
    "contents": "messages",
    "continue_final_message": "/v1/chat/completions",
    "extra_body": "its fields as fields of the request",
    "do_sample": "temperature 0",
    "ebnf": "grammar",
    "enable_thinking": "chat_template_kwargs with enable_thinking",
    "format": "response_format",
    "function_call": "/v1/chat/completions",
    "functions": "/v1/chat/completions",
    "generationConfig": "its fields as fields of the request",
    "generation_config": "its fields as fields of the request",
    "grammar_string": "grammar",
    "guided_json_object": "structured_outputs with json_object",
    "guided_whitespace_pattern": "the option whitespace_pattern under x-guidance of the schema",
    "input": "messages, or /v1/responses",
    "inputs": "prompt, or messages",
    "instructions": "a message of the role system, or /v1/responses",
    "max_length": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "messages": "/v1/chat/completions",
    "min_length": "min_tokens",
    "num_predict": "max_tokens",
    "options": "its fields as fields of the request",
    "parameters": "its fields as fields of the request",
    "prompt": "messages, or /v1/completions",
    "random_seed": "seed",
    "reasoning": "reasoning_effort, or chat_template_kwargs with enable_thinking",
    "regex": "structured_outputs with regex",
    "rep_pen": "repetition_penalty",
    "sampler_seed": "seed",
    "sampling_params": "its fields as fields of the request",
    "stop_sequence": "stop",
    "stop_sequences": "stop",
    "stopping_strings": "stop",
    "system": "a message of the role system",
    "systemInstruction": "a message of the role system",
    "system_instruction": "a message of the role system",
    "think": "chat_template_kwargs with enable_thinking",
    "thinking": "chat_template_kwargs with enable_thinking",
    "tool_choice": "/v1/chat/completions",
    "tools": "/v1/chat/completions",
    "top_logprobs": "logprobs with a number",
    "n_cmpl": "n",
    "n_predict": "max_tokens",
    "n_probs": "logprobs",
    "repeat_penalty": "repetition_penalty",
    "return_tokens": "return_tokens_as_token_ids with logprobs",
}
_ALIKE = 0.8
"""Least similarity of a misspelled name, as difflib counts it."""


def check_extra(path: str, extra: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Raises InvalidField for the first field of ``extra`` that must not be ignored.

    Args:
        path: path of the object in the request, with a dot at its end; empty for the request itself.
        extra: the fields that the object does not have, by name.
        fields: the fields that the object has, by name. A field of another server may say the same as one of them.
    """
    for name, value in extra.items():
        if value is None or name in IGNORED or (not value and name not in _MEANINGFUL):
            continue
        if name in _NEUTRAL:
            if value not in _NEUTRAL[name] and value != fields.get(_INSTEAD.get(name, "")):
                raise InvalidField(path + name, f": this worker does not support it; {_advice(name)}")
        elif near := get_close_matches(name, [*fields, *IGNORED, *_NEUTRAL], 1, _ALIKE):
            also = f" This worker does not support it; {_advice(near[0])}" if near[0] in _NEUTRAL else ""
            raise InvalidField(path + name, f": unknown field; did you mean {near[0]}?{also}")


def _advice(name: str) -> str:
    """What to do instead of a field that is refused."""
    return f"use {_INSTEAD[name]}" if name in _INSTEAD else "leave it out"


def is_known(name: str) -> bool:
    """Whether a field that the worker does not have is one of another server."""
    return name in IGNORED or name in _NEUTRAL
