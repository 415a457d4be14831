"""``model.generate(..., custom_generate=suffolk.generate)``: decoding with drafts inside transformers."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.utils import GenerateDecoderOnlyOutput

from suffolk.datastore.errors import Unsupported
from suffolk.serving.engine.sampling.settings import MAX_SEED, SamplingSettings
from suffolk.serving.integrations.transformers.columns import Columns
from suffolk.serving.integrations.transformers.prompts import read_prompts
from suffolk.serving.integrations.transformers.row_processors import Processor, row_processors
from suffolk.serving.integrations.transformers.session import find_session

_UNSUPPORTED_SETTINGS = {
    "num_beams": (1, None),
    "output_attentions": (False, None),
    "output_hidden_states": (False, None),
    "guidance_scale": (1, None),
    "watermarking_config": (None,),
    "prompt_lookup_num_tokens": (None,),
    "dola_layers": (None,),
    "penalty_alpha": (0, None),
}
"""Setting -> the values that disable it."""
_UNSUPPORTED_INPUTS = ("inputs_embeds", "encoder_outputs", "negative_prompt_ids", "pixel_values", "input_features")


def generate(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    synced_gpus: bool = False,
    streamer: Any = None,
    datastore: str | Path | None = None,
    drafter: str = "",
    max_nodes: int = 64,
    **model_kwargs: Any,
) -> GenerateDecoderOnlyOutput | torch.Tensor:
    """Decode with drafts. A decoding loop for ``custom_generate``. transformers prepares and passes the arguments.

    Greedy ids equal those of plain ``generate`` up to near-ties of two logits. Sampled ids have the same distribution, and
    follow ``torch.manual_seed``. Logits processors, stopping criteria, streamers, left-padded batches, several return
    sequences, scores and logits work as in ``generate``. Processors must be stateless: they also score drafted tokens.

    The first call for a model takes seconds: it checks the model and measures its passes. The model decodes one call at a time.

    Args:
        model: the model whose ``generate`` was called; a causal LM.
        input_ids: int64[batch, n], left-padded; ``attention_mask`` in ``model_kwargs`` marks the padding.
        logits_processor, stopping_criteria, generation_config, synced_gpus, streamer: as transformers prepares them.
        datastore: folder or grpc:// URL of a datastore for this model's tokenizer; None drafts from the prompt alone.
        drafter: name of a drafter; empty for ``hybrid`` with a datastore, else ``prompt-lookup``; "none" for no drafts.
        max_nodes: most nodes of a draft tree, 1..1024.

    Returns:
        int64[batch, n + generated], or ``GenerateDecoderOnlyOutput`` without attentions, hidden states and cache.

    Raises:
        Unsupported: the model or a setting (beams, attentions, a filled cache) cannot be decoded here.
        InvalidArgument: an unknown drafter, or padding that is not on the left.
        NotFound, Corruption, Unavailable: the datastore cannot be opened.
    """
    _require_supported(model, generation_config, model_kwargs)
    streamer = _callers_streamer() if streamer is None else streamer
    prompts = read_prompts(input_ids, model_kwargs.get("attention_mask"))
    session = find_session(model, datastore, drafter or ("prompt-lookup" if datastore is None else "hybrid"))
    columns = Columns(input_ids, logits_processor, stopping_criteria, generation_config, streamer)
    room = generation_config.max_length - input_ids.shape[1]
    capacity = generation_config.max_length + max_nodes
    with session.decoding(len(prompts), capacity, columns.eos_ids) as loop:
        for row, prompt in enumerate(prompts):
            processors = row_processors(logits_processor, row, len(prompts), prompt.padding)
            loop.add(row, prompt, _settings(generation_config, room, processors), max_nodes, columns.keeps_logits)
        while not columns.ended:
            for row in columns.extend(loop.step()):
                loop.leave(row)
    return columns.result()


def _settings(config: GenerationConfig, room: int, processors: tuple[Processor, ...]) -> SamplingSettings:
    if not config.do_sample:
        return SamplingSettings(room, processors=processors)
    seed = int(torch.randint(MAX_SEED, ()))
    return SamplingSettings(room, temperature=1.0, seed=seed, processors=processors)  # warpers are among the processors


def _require_supported(model: Any, config: GenerationConfig, inputs: dict[str, Any]) -> None:
    if model.config.is_encoder_decoder:
        raise Unsupported(f"{type(model).__name__} is an encoder-decoder; suffolk.generate decodes causal LMs only")
    for name, off in _UNSUPPORTED_SETTINGS.items():
        if (value := getattr(config, name, None)) not in off:
            raise Unsupported(f"{name} is {value!r}; suffolk.generate does not support it; leave it out")
    for name in _UNSUPPORTED_INPUTS:
        if inputs.get(name) is not None:
            raise Unsupported(f"{name} is given; suffolk.generate takes only input_ids")
    cache = inputs.get("past_key_values")
    if cache is not None and cache.get_seq_length() > 0:
        raise Unsupported(
            "past_key_values holds tokens; suffolk.generate keeps its own cache, pass the whole text as input_ids"
        )


def _callers_streamer() -> Any:
    """The streamer of the ``generate`` call; None if there is none.

    transformers (5.24 and before) passes a streamer to its own loops only. A streamer that receives the prompt but no
    end would block its reader forever. This function therefore reads the streamer from the stack frame of ``generate``.
    """
    frame = inspect.currentframe()
    caller = frame.f_back.f_back if frame is not None and frame.f_back is not None else None
    return caller.f_locals.get("streamer") if caller is not None and caller.f_code.co_name == "generate" else None
