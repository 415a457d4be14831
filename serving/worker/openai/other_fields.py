"""Names of fields that OpenAI's API or other servers have, and this worker has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

IGNORED = frozenset(
    (
        *("client_metadata", "conversation_id", "metadata", "model_id", "models", "prompt_cache_key"),
        *("prompt_cache_options", "prompt_cache_retention", "safety_identifier", "service_tier"),
        *("store", "user"),  # OpenAI
        *("cache_salt", "data_parallel_rank", "ec_transfer_params"),
        *("kv_transfer_params", "priority", "request_id", "session_id"),
        "spaces_between_special_tokens",  # vLLM
        *("bootstrap_host", "bootstrap_port", "bootstrap_room", "disagg_prefill_dp_rank"),
        *("extra_key", "ngram_corpus_id", "rid", "routed_dp_rank"),
        "stream_reasoning",  # SGLang
        *("backend_sampling", "cache_prompt", "generation_prompt", "id_slot", "n_cache_reuse"),
        *("preserved_tokens", "slot_id", "sse_ping_interval"),  # llama.cpp
        *("adaptive_decay", "dry_allowed_length", "dry_base", "dry_penalty_last_n"),
        *("dry_sequence_breakers", "dynatemp_exponent", "dynatemp_high", "dynatemp_low"),
        *(
            "mirostat_eta",
            "mirostat_tau",
            "smoothing_curve",
            "xtc_threshold",
        ),  # samplers, with a field that turns it on
    )
)
"""Fields without effect on the text."""
_OTHERS = (
    *("audio", "include_obfuscation", "moderation", "web_search_options"),
    *("extra_body", "extra_headers", "extra_query"),  # OpenAI, and options of its clients
    *("background", "context_management", "conversation", "echo", "functions", "include", "input"),
    *("instructions", "max_output_tokens", "max_tool_calls", "messages", "previous_response_id"),
    *("prompt", "reasoning_effort", "suffix", "tools", "top_logprobs"),  # of another path
    *("allowed_token_ids", "chat_template", "chat_template_kwargs", "continue_final_message"),
    *("documents", "early_stopping", "guided_json_object", "guided_whitespace_pattern"),
    *("logits_processors", "logprob_token_ids", "media_io_kwargs", "mm_processor_kwargs"),
    *("prompt_embeds", "repetition_detection", "return_prompt_text", "return_token_ids"),
    *("return_token_offsets", "structural_tag", "thinking_token_budget", "use_beam_search"),
    *("vllm_xargs", "watermarking"),  # vLLM
    *("content", "dry_multiplier", "dynatemp_range", "enable_thinking", "grammar_lazy"),
    *("grammar_triggers", "image_data", "lora", "min_keep", "mirostat", "n_discard", "n_indent"),
    *("n_keep", "n_probs", "penalize_nl", "post_sampling_probs", "reasoning_budget_message"),
    *("reasoning_control", "reasoning_in_content", "response_fields", "return_progress"),
    *("return_tokens", "samplers", "thinking_forced_open", "timings_per_token"),
    "xtc_probability",  # llama.cpp
    *("adapter_id", "custom_logit_processor", "decoder_input_details", "ebnf", "format"),
    *("generation_config", "images", "input_ids", "inputs", "lora_path", "lora_request"),
    *("max_length", "max_new_tokens", "no_stop_trim", "options", "parameters", "regex"),
    *("return_full_text", "return_hidden_states", "return_meta_info", "return_prompt_token_ids"),
    *("return_routed_experts", "sampling_params", "session_params", "stop_regex"),
    *("stop_sequences", "system", "think", "top_n_tokens", "truncate", "watermark"),  # SGLang, TGI, Ollama
    *("echo_last", "enable_search", "max_gen_len", "max_tokens_to_sample", "nvext", "plugins"),
    *("prompt_mode", "prompt_truncate_len", "random_seed", "raw_output", "reasoning"),
    *("safe_prompt", "search_parameters", "speculation", "thinking", "thinking_budget"),
    "thinking_config",  # DashScope, DeepSeek, Mistral, OpenRouter and xAI
    *("contents", "generationConfig", "systemInstruction", "system_instruction"),  # Gemini
    *("ban_eos_token", "banned_strings", "banned_tokens", "begin_suppress_tokens", "bypass_eos"),
    *("custom_token_bans", "dynamic_temperature", "epsilon_cutoff", "eta_cutoff"),
    *("grammar_string", "min_length", "mirostat_mode", "negative_prompt", "no_repeat_ngram_size"),
    *("nsigma", "penalty_alpha", "render_special", "sampler_order", "sampler_priority", "skew"),
    *("smoothing_factor", "stop_sequence", "stopping_strings", "suppress_tokens"),
    *("temperature_last", "top_a"),  # text-generation-webui, KoboldCpp and TabbyAPI
)
"""Fields of which each value but null, false, 0 and empty ones asks for something."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = dict.fromkeys(_OTHERS, ()) | {
    "adaptive_target": (-1,),
    "add_generation_prompt": (True,),
    "add_special_tokens": (True,),
    "best_of": (1,),
    "do_sample": (True,),
    "encoder_repetition_penalty": (1,),
    "function_call": ("none", "auto"),
    "guidance_scale": (1,),
    "guided_decoding_backend": ("auto", "guidance"),
    "include_reasoning": (True,),
    "length_penalty": (1,),
    "modalities": (["text"],),
    "n_cmpl": (1,),
    "n_predict": (-1,),
    "num_beams": (1,),
    "num_predict": (-1,),
    "num_return_sequences": (1,),
    "parallel_tool_calls": (True,),
    "parse_tool_calls": (True,),
    "reasoning_budget": (-1,),
    "reasoning_budget_tokens": (-1,),
    "reasoning_format": ("auto",),
    "rep_pen": (1,),
    "rep_pen_range": (-1,),
    "repeat_last_n": (64, -1),
    "repeat_penalty": (1,),
    "repetition_penalty_range": (-1,),
    "sampler_seed": (-1,),
    "separate_reasoning": (True,),
    "t_max_predict_ms": (-1,),
    "text": (
        {"format": {"type": "text"}},
        {"verbosity": "medium"},
        {"format": {"type": "text"}, "verbosity": "medium"},
    ),
    "tfs": (1,),
    "tfs_z": (1,),
    "thinking_budget_tokens": (-1,),
    "tool_choice": ("none", "auto"),
    "top_n_sigma": (-1,),
    "truncation": ("disabled",),
    "truncation_side": ("left",),
    "typical": (1,),
    "typical_p": (1,),
    "verbosity": ("medium",),
}
"""Field that is refused -> values beside null, false, 0 and empty ones that ask for nothing."""
MEANINGFUL = frozenset(
    (
        *("add_generation_prompt", "add_special_tokens", "allowed_token_ids", "do_sample", "enable_thinking"),
        *("guided_decoding_backend", "guided_whitespace_pattern", "include_reasoning", "n_predict"),
        *("parse_tool_calls", "random_seed", "reasoning_budget", "reasoning_budget_tokens"),
        *("sampler_seed", "samplers", "separate_reasoning", "tfs", "tfs_z", "think"),
        *("thinking_budget", "thinking_budget_tokens", "thinking_token_budget", "typical", "typical_p"),
    )
)
"""Fields of which false, 0 and empty ones ask for something too."""
INSTEAD = {
    "add_generation_prompt": "/v1/chat/completions",
    "add_special_tokens": "token ids as prompt",
    "background": "stream, as nothing is stored",
    "ban_eos_token": "ignore_eos",
    "banned_strings": "bad_words",
    "banned_tokens": "bad_words",
    "bypass_eos": "ignore_eos",
    "chat_template_kwargs": "/v1/chat/completions",
    "content": "prompt, or messages",
    "contents": "messages",
    "continue_final_message": "/v1/chat/completions",
    "conversation": "messages, or prompt, with the whole conversation, as nothing is stored",
    "custom_token_bans": "logit_bias",
    "decoder_input_details": "prompt_logprobs",
    "do_sample": "temperature 0",
    "ebnf": "grammar",
    "enable_thinking": "chat_template_kwargs with enable_thinking",
    "extra_body": "its fields as fields of the request",
    "extra_headers": "them as headers of HTTP",
    "format": "response_format",
    "function_call": "/v1/chat/completions",
    "functions": "/v1/chat/completions",
    "generationConfig": "its fields as fields of the request",
    "generation_config": "its fields as fields of the request",
    "grammar_string": "grammar",
    "guided_json_object": "structured_outputs with json_object",
    "guided_whitespace_pattern": "the option whitespace_pattern under x-guidance of the schema",
    "include": "logprobs",
    "include_reasoning": "/v1/chat/completions",
    "input": "messages, or /v1/responses",
    "input_ids": "prompt of /v1/completions",
    "inputs": "prompt, or messages",
    "instructions": "a message of the role system, or /v1/responses",
    "max_gen_len": "max_tokens",
    "max_length": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_tokens_to_sample": "max_tokens",
    "max_tool_calls": "parallel_tool_calls: false for one call",
    "messages": "/v1/chat/completions",
    "min_length": "min_tokens",
    "n_cmpl": "n",
    "n_predict": "max_tokens",
    "n_probs": "logprobs",
    "no_stop_trim": "include_stop_str_in_output",
    "num_predict": "max_tokens",
    "num_return_sequences": "n",
    "nvext": "its fields as fields of the request",
    "options": "its fields as fields of the request",
    "parallel_tool_calls": "/v1/chat/completions",
    "parameters": "its fields as fields of the request",
    "previous_response_id": "messages, or prompt, with the whole conversation, as nothing is stored",
    "prompt": "messages, or /v1/completions",
    "prompt_truncate_len": "truncate_prompt_tokens",
    "random_seed": "seed",
    "reasoning": "reasoning_effort, or chat_template_kwargs with enable_thinking",
    "reasoning_effort": "/v1/chat/completions",
    "reasoning_format": "/v1/chat/completions",
    "regex": "structured_outputs with regex",
    "render_special": "skip_special_tokens",
    "rep_pen": "repetition_penalty",
    "repeat_penalty": "repetition_penalty",
    "return_full_text": "echo of /v1/completions",
    "return_prompt_text": "/tokenize and /detokenize",
    "return_prompt_token_ids": "/tokenize",
    "return_tokens": "return_tokens_as_token_ids with logprobs",
    "sampler_seed": "seed",
    "sampling_params": "its fields as fields of the request",
    "separate_reasoning": "/v1/chat/completions",
    "speculation": "prediction",
    "stop_sequence": "stop",
    "stop_sequences": "stop",
    "stopping_strings": "stop",
    "suppress_tokens": "logit_bias",
    "system": "a message of the role system",
    "systemInstruction": "a message of the role system",
    "system_instruction": "a message of the role system",
    "text": "response_format",
    "think": "chat_template_kwargs with enable_thinking",
    "thinking": "chat_template_kwargs with enable_thinking",
    "thinking_config": "chat_template_kwargs with enable_thinking",
    "tool_choice": "/v1/chat/completions",
    "tools": "/v1/chat/completions",
    "top_logprobs": "logprobs with a number",
    "top_n_tokens": "top_logprobs",
    "truncate": "truncate_prompt_tokens",
    "truncation": "truncate_prompt_tokens",
}
"""Field that is refused -> what to use."""
_THINKING = ("enable_thinking", "reasoning_effort", "think", "thinking", "thinking_config")
_SYSTEM = ("system", "systemInstruction", "system_instruction")
_TEXTS = ("content", "contents", "inputs")
_STORED = ("conversation", "previous_response_id")
INSTEAD_IN_COMPLETIONS: Mapping[str, str] = {
    **dict.fromkeys((*_THINKING, *_SYSTEM, "instructions", "reasoning"), "/v1/chat/completions"),
    **dict.fromkeys((*_TEXTS, "input"), "prompt"),
    **dict.fromkeys(_STORED, "prompt with the whole conversation, as nothing is stored"),
    "max_tool_calls": "/v1/chat/completions",
}
"""Field that /v1/completions refuses -> what to use, where it differs from ``INSTEAD``."""
INSTEAD_IN_RESPONSES: Mapping[str, str] = {
    **dict.fromkeys(_THINKING, "reasoning.effort"),
    **dict.fromkeys(_SYSTEM, "instructions"),
    **dict.fromkeys((*_TEXTS, "messages"), "input"),
    **dict.fromkeys(_STORED, "input with the whole conversation, as nothing is stored"),
    **dict.fromkeys(("max_completion_tokens", "max_tokens"), "max_output_tokens"),
    **dict.fromkeys(("add_special_tokens", "prompt_logprobs", "return_tokens_as_token_ids"), "/v1/chat/completions"),
    "function_call": "tool_choice",
    "functions": "tools",
    "logprobs": "top_logprobs",
    "prompt": "instructions or input, as no prompts are stored",
    "response_format": "text.format",
}
"""The same for /v1/responses."""
