"""Names of fields that OpenAI's API or other servers have, and this worker has not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OtherField:
    """A field that is refused if its value asks for something. Null never does.

    Attributes:
        use: what to use in its place.
        neutral: values that ask for nothing.
        falsy_asks: whether false, 0 and empty values ask for something too.
    """

    use: str = ""
    neutral: tuple[Any, ...] = ()
    falsy_asks: bool = False

    def asks(self, value: Any) -> bool:
        """Whether ``value`` asks for something."""
        return (bool(value) or self.falsy_asks) and value not in self.neutral


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
        *("mirostat_eta", "mirostat_tau", "smoothing_curve"),
        "xtc_threshold",  # samplers, each with another field that turns it on
    )
)
"""Fields without effect on the text."""
_PLAIN = (
    # OpenAI, and an option of its clients
    *("audio", "extra_query", "include_obfuscation", "moderation", "web_search_options"),
    # fields of other paths of the API
    *("context_management", "echo", "suffix"),
    # vLLM
    *("chat_template", "documents", "early_stopping", "logits_processors", "logprob_token_ids"),
    *("media_io_kwargs", "mm_processor_kwargs", "prompt_embeds", "repetition_detection"),
    *("return_token_ids", "return_token_offsets", "structural_tag", "use_beam_search", "vllm_xargs"),
    "watermarking",
    # llama.cpp
    *("dry_multiplier", "dynatemp_range", "grammar_lazy", "grammar_triggers", "image_data", "lora"),
    *("min_keep", "mirostat", "n_discard", "n_indent", "n_keep", "penalize_nl", "post_sampling_probs"),
    *("reasoning_budget_message", "reasoning_control", "reasoning_in_content", "response_fields"),
    *("return_progress", "thinking_forced_open", "timings_per_token", "xtc_probability"),
    # SGLang, TGI, Ollama
    *("adapter_id", "custom_logit_processor", "images", "lora_path", "lora_request"),
    *("return_hidden_states", "return_meta_info", "return_routed_experts", "session_params"),
    *("stop_regex", "watermark"),
    # DashScope, DeepSeek, Mistral, OpenRouter and xAI
    *("echo_last", "enable_search", "plugins", "prompt_mode", "raw_output", "safe_prompt"),
    "search_parameters",
    # text-generation-webui, KoboldCpp and TabbyAPI
    *("begin_suppress_tokens", "dynamic_temperature", "epsilon_cutoff", "eta_cutoff", "mirostat_mode"),
    *("negative_prompt", "no_repeat_ngram_size", "nsigma", "penalty_alpha", "sampler_order"),
    *("sampler_priority", "skew", "smoothing_factor", "temperature_last", "top_a"),
)
"""Fields without a row of their own below."""
OTHER: Mapping[str, OtherField] = dict.fromkeys(_PLAIN, OtherField()) | {
    "adaptive_target": OtherField(neutral=(-1,)),
    "add_generation_prompt": OtherField("/v1/chat/completions", (True,), falsy_asks=True),
    "add_special_tokens": OtherField("token ids as prompt", (True,), falsy_asks=True),
    "allowed_token_ids": OtherField(falsy_asks=True),
    "background": OtherField("stream, as nothing is stored"),
    "ban_eos_token": OtherField("ignore_eos"),
    "banned_strings": OtherField("bad_words"),
    "banned_tokens": OtherField("bad_words"),
    "best_of": OtherField(neutral=(1,)),
    "bypass_eos": OtherField("ignore_eos"),
    "chat_template_kwargs": OtherField("/v1/chat/completions"),
    "content": OtherField("prompt, or messages"),
    "contents": OtherField("messages"),
    "continue_final_message": OtherField("/v1/chat/completions"),
    "conversation": OtherField("messages, or prompt, with the whole conversation, as nothing is stored"),
    "custom_token_bans": OtherField("logit_bias"),
    "decoder_input_details": OtherField("prompt_logprobs"),
    "do_sample": OtherField("temperature 0", (True,), falsy_asks=True),
    "ebnf": OtherField("grammar"),
    "enable_thinking": OtherField("chat_template_kwargs with enable_thinking", falsy_asks=True),
    "encoder_repetition_penalty": OtherField(neutral=(1,)),
    "extra_body": OtherField("its fields as fields of the request"),
    "extra_headers": OtherField("them as headers of HTTP"),
    "format": OtherField("response_format"),
    "function_call": OtherField("/v1/chat/completions", ("none", "auto")),
    "functions": OtherField("/v1/chat/completions"),
    "generationConfig": OtherField("its fields as fields of the request"),
    "generation_config": OtherField("its fields as fields of the request"),
    "grammar_string": OtherField("grammar"),
    "guidance_scale": OtherField(neutral=(1,)),
    "guided_decoding_backend": OtherField(neutral=("auto", "guidance"), falsy_asks=True),
    "guided_json_object": OtherField("structured_outputs with json_object"),
    "guided_whitespace_pattern": OtherField(
        "the option whitespace_pattern under x-guidance of the schema", falsy_asks=True
    ),
    "include": OtherField("logprobs"),
    "include_reasoning": OtherField("/v1/chat/completions", (True,), falsy_asks=True),
    "input": OtherField("messages, or /v1/responses"),
    "input_ids": OtherField("prompt of /v1/completions"),
    "inputs": OtherField("prompt, or messages"),
    "instructions": OtherField("a message of the role system, or /v1/responses"),
    "length_penalty": OtherField(neutral=(1,)),
    "max_gen_len": OtherField("max_tokens"),
    "max_length": OtherField("max_tokens"),
    "max_new_tokens": OtherField("max_tokens"),
    "max_output_tokens": OtherField("max_tokens"),
    "max_tokens_to_sample": OtherField("max_tokens"),
    "max_tool_calls": OtherField("parallel_tool_calls: false for one call"),
    "messages": OtherField("/v1/chat/completions"),
    "min_length": OtherField("min_tokens"),
    "modalities": OtherField(neutral=(["text"],)),
    "n_cmpl": OtherField("n", (1,)),
    "n_predict": OtherField("max_tokens", (-1,), falsy_asks=True),
    "n_probs": OtherField("logprobs"),
    "no_stop_trim": OtherField("include_stop_str_in_output"),
    "num_beams": OtherField(neutral=(1,)),
    "num_predict": OtherField("max_tokens", (-1,)),
    "num_return_sequences": OtherField("n", (1,)),
    "nvext": OtherField("its fields as fields of the request"),
    "options": OtherField("its fields as fields of the request"),
    "parallel_tool_calls": OtherField("/v1/chat/completions", (True,)),
    "parameters": OtherField("its fields as fields of the request"),
    "parse_tool_calls": OtherField(neutral=(True,), falsy_asks=True),
    "previous_response_id": OtherField("messages, or prompt, with the whole conversation, as nothing is stored"),
    "prompt": OtherField("messages, or /v1/completions"),
    "prompt_truncate_len": OtherField("truncate_prompt_tokens"),
    "random_seed": OtherField("seed", falsy_asks=True),
    "reasoning": OtherField("reasoning_effort, or chat_template_kwargs with enable_thinking"),
    "reasoning_budget": OtherField(neutral=(-1,), falsy_asks=True),
    "reasoning_budget_tokens": OtherField(neutral=(-1,), falsy_asks=True),
    "reasoning_effort": OtherField("/v1/chat/completions"),
    "reasoning_format": OtherField("/v1/chat/completions", ("auto",)),
    "regex": OtherField("structured_outputs with regex"),
    "render_special": OtherField("skip_special_tokens"),
    "rep_pen": OtherField("repetition_penalty", (1,)),
    "rep_pen_range": OtherField(neutral=(-1,)),
    "repeat_last_n": OtherField(neutral=(64, -1)),
    "repeat_penalty": OtherField("repetition_penalty", (1,)),
    "repetition_penalty_range": OtherField(neutral=(-1,)),
    "return_full_text": OtherField("echo of /v1/completions"),
    "return_prompt_text": OtherField("/tokenize and /detokenize"),
    "return_prompt_token_ids": OtherField("/tokenize"),
    "return_tokens": OtherField("return_tokens_as_token_ids with logprobs"),
    "sampler_seed": OtherField("seed", (-1,), falsy_asks=True),
    "samplers": OtherField(falsy_asks=True),
    "sampling_params": OtherField("its fields as fields of the request"),
    "separate_reasoning": OtherField("/v1/chat/completions", (True,), falsy_asks=True),
    "speculation": OtherField("prediction"),
    "stop_sequence": OtherField("stop"),
    "stop_sequences": OtherField("stop"),
    "stopping_strings": OtherField("stop"),
    "suppress_tokens": OtherField("logit_bias"),
    "system": OtherField("a message of the role system"),
    "systemInstruction": OtherField("a message of the role system"),
    "system_instruction": OtherField("a message of the role system"),
    "t_max_predict_ms": OtherField(neutral=(-1,)),
    "text": OtherField(
        "response_format",
        ({"format": {"type": "text"}}, {"verbosity": "medium"}, {"format": {"type": "text"}, "verbosity": "medium"}),
    ),
    "tfs": OtherField(neutral=(1,), falsy_asks=True),
    "tfs_z": OtherField(neutral=(1,), falsy_asks=True),
    "think": OtherField("chat_template_kwargs with enable_thinking", falsy_asks=True),
    "thinking": OtherField("chat_template_kwargs with enable_thinking"),
    "thinking_budget": OtherField(falsy_asks=True),
    "thinking_budget_tokens": OtherField(neutral=(-1,), falsy_asks=True),
    "thinking_config": OtherField("chat_template_kwargs with enable_thinking"),
    "thinking_token_budget": OtherField(falsy_asks=True),
    "tool_choice": OtherField("/v1/chat/completions", ("none", "auto")),
    "tools": OtherField("/v1/chat/completions"),
    "top_logprobs": OtherField("logprobs with a number"),
    "top_n_sigma": OtherField(neutral=(-1,)),
    "top_n_tokens": OtherField("top_logprobs"),
    "truncate": OtherField("truncate_prompt_tokens"),
    "truncation": OtherField("truncate_prompt_tokens", ("disabled",)),
    "truncation_side": OtherField(neutral=("left",)),
    "typical": OtherField(neutral=(1,), falsy_asks=True),
    "typical_p": OtherField(neutral=(1,), falsy_asks=True),
    "verbosity": OtherField(neutral=("medium",)),
}
"""Fields that are refused if they ask for something."""
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
"""Field that /v1/completions refuses -> what to use, where it differs from ``OTHER``."""
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
