"""``model.generate(..., custom_generate=suffolk.generate)``: decoding with drafts inside transformers."""

from __future__ import annotations

import inspect
from itertools import count
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.utils import GenerateDecoderOnlyOutput

from suffolk.datastore.errors import Field, InvalidArgument, SuffolkError, Unsupported
from suffolk.serving.decoding.drafters.registry import NONE
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.sampling.settings import MAX_SEED, SamplingSettings
from suffolk.serving.integrations.transformers.session import find_session, row_processors

MOST_ROWS = 1024
"""The most rows of a batch: the slots of a step loop."""
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
_Row = tuple[list[int], list[torch.Tensor]]
"""The tokens of a row, and their logits if they are kept."""


def generate(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    synced_gpus: bool = False,
    streamer: Any = None,
    datastore: str | Path | None = None,
    drafter: str | None = "",
    max_nodes: int = 64,
    **model_kwargs: Any,
) -> GenerateDecoderOnlyOutput | torch.Tensor:
    """Decode with drafts. A decoding loop for ``custom_generate``. transformers prepares and passes the arguments.

    Greedy ids equal the ids of plain ``generate``, unless two logits are nearly equal. Sampled ids have the same distribution,
    and follow ``torch.manual_seed``. Logits processors, stopping criteria, streamers, left-padded batches, several return
    sequences, scores and logits work as in ``generate``. Processors must be stateless: they also score drafted tokens.

    The first call for a model takes seconds: it checks the model and measures its passes. The model decodes one call at a time.

    Args:
        model: the model whose ``generate`` was called; a causal LM.
        input_ids: int64[batch, n], left-padded; ``attention_mask`` in ``model_kwargs`` marks the padding.
        logits_processor, stopping_criteria, generation_config, synced_gpus, streamer: as transformers prepares them.
        datastore: folder or grpc:// URL of a datastore for this model's tokenizer; None drafts from the prompt alone.
        drafter: name of a drafter; empty for ``hybrid`` with a datastore, else ``prompt-lookup``; None or "none" for no
            drafts.
        max_nodes: the most nodes of a draft tree, 1..1024.

    Returns:
        int64[batch, n + generated], or ``GenerateDecoderOnlyOutput`` without attentions, hidden states and cache.

    Raises:
        Unsupported: the model or a setting (beams, attentions, a filled cache) cannot be decoded here.
        InvalidArgument: an unknown drafter, or padding that is not on the left.
        NotFound, Corruption, Unavailable: the datastore cannot be opened.
    """
    _require_supported(model, generation_config, model_kwargs)
    streamer = _callers_streamer() if streamer is None else streamer
    paddings = _paddings(input_ids, model_kwargs.get("attention_mask"))
    default = "prompt-lookup" if datastore is None else "hybrid"
    session = find_session(model, datastore, NONE if drafter is None else drafter or default)
    capacity = generation_config.max_length + max_nodes
    with session.decoding(len(input_ids), capacity, _eos_ids(stopping_criteria)) as loop:
        requests = []
        for row, padding in enumerate(paddings):
            processors = row_processors(logits_processor, row, len(input_ids), input_ids[row, :padding])
            settings = _settings(generation_config, input_ids.shape[1], processors)
            keeps = _keeps_scores(generation_config)
            prompt, number = input_ids[row, padding:].cpu().numpy(), next(session.numbers)
            request = Request(number, loop.target, prompt, settings, session.drafter, max_nodes, keep_logits=keeps)
            loop.join(request)
            requests.append(request)
        return _decode(loop, requests, input_ids, logits_processor, stopping_criteria, generation_config, streamer)


def _decode(
    loop: StepLoop,
    requests: list[Request],
    ids: torch.Tensor,
    processor: Any,
    criteria: StoppingCriteriaList,
    config: Any,
    streamer: Any,
) -> GenerateDecoderOnlyOutput | torch.Tensor:
    """Decode ``requests``, the rows of ``ids``. Returns the result of ``generate``.

    Rows advance at different speeds. A column is added when all running rows have its token. So scores, stopping
    criteria and streamer get their columns as in ``generate``.
    """
    pads = bool(_eos_criteria(criteria))  # else finished rows go on until all have finished, as in ``generate``
    rows: dict[int, _Row] = {request.number: ([], []) for request in requests}
    finished = [False] * len(requests)
    scores: tuple[torch.Tensor, ...] = ()
    raw: tuple[torch.Tensor, ...] = ()
    for column in count():
        _fill(loop, rows, column)
        running = [len(tokens) > column for tokens, _ in rows.values()]
        if not any(running):  # the model's context is full
            break
        if _keeps_scores(config):
            each = [logits[column] if runs else None for runs, (_, logits) in zip(running, rows.values(), strict=True)]
            raw += (_stack(each).to(ids.device),)
            scores += (processor(ids, raw[-1].clone()),)
        padding = 0 if all(running) else int(config._pad_token_tensor)
        new = [tokens[column] if runs else padding for runs, (tokens, _) in zip(running, rows.values(), strict=True)]
        ids = torch.cat([ids, torch.tensor(new, dtype=ids.dtype, device=ids.device)[:, None]], 1)
        for row, ends in enumerate(criteria(ids, scores if config.output_scores else None).tolist()):
            finished[row] |= ends
            if pads and ends:
                loop.leave(requests[row])
                del rows[requests[row].number][0][column + 1 :]
        if streamer is not None:
            streamer.put(ids[:, -1].cpu())
        if all(done or not runs for done, runs in zip(finished, running, strict=True)):
            break
    if streamer is not None:
        streamer.end()
    if not config.return_dict_in_generate:
        return ids
    found: dict[str, Any] = {"sequences": ids}
    found |= {"scores": scores} if config.output_scores else {}
    found |= {"logits": raw} if config.output_logits else {}
    return GenerateDecoderOnlyOutput(**found)


def _fill(loop: StepLoop, rows: dict[int, _Row], column: int) -> None:
    """Decode until each running row has its token of ``column``. Raises the error of a failed row."""
    while any(len(rows[request.number][0]) <= column for request in loop.running):
        for request, step in loop.step():
            if isinstance(step, SuffolkError):
                raise step
            tokens, logits = rows[request.number]
            tokens += step.tokens
            logits += [] if step.logits is None else list(step.logits)


def _stack(logits: list[torch.Tensor | None]) -> torch.Tensor:
    """float32[batch, vocab]; 0 for rows without logits."""
    empty = torch.zeros_like(next(each for each in logits if each is not None))
    return torch.stack([empty if each is None else each for each in logits]).float()


def _paddings(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> list[int]:
    """The padding ids before each row. ``attention_mask`` [batch, n]: 0 for padding; None if nothing is padded.

    Raises:
        InvalidArgument: there are more than ``MOST_ROWS`` rows, or a row is all padding or has padding not on the left.
    """
    if len(input_ids) > MOST_ROWS:
        raise InvalidArgument(f"the batch has {len(input_ids)} rows; at most {MOST_ROWS} are decoded at once, split it")
    mask = (torch.ones_like(input_ids) if attention_mask is None else attention_mask).bool()
    for row, each in enumerate(mask.tolist()):
        if each != sorted(each) or not any(each):
            raise InvalidArgument(
                Field("attention_mask"),
                f" of row {row} hides tokens that are not on the left; pad with padding_side='left'",
            )
    return [int(size) for size in (~mask).sum(1)]


def _settings(config: GenerationConfig, width: int, processors: Any) -> SamplingSettings:
    """Settings without warpers, which are among ``processors``."""
    room = config.max_length - width
    if not config.do_sample:
        return SamplingSettings(room, processors=processors)
    return SamplingSettings(room, temperature=1.0, seed=int(torch.randint(MAX_SEED, ())), processors=processors)


def _keeps_scores(config: Any) -> bool:
    return bool(config.return_dict_in_generate and (config.output_scores or config.output_logits))


def _eos_criteria(criteria: StoppingCriteriaList) -> list[Any]:
    return [each for each in criteria if hasattr(each, "eos_token_id")]


def _eos_ids(criteria: StoppingCriteriaList) -> frozenset[int]:
    """The ids that end a row."""
    ids = [each.eos_token_id for each in _eos_criteria(criteria) if each.eos_token_id is not None]
    return frozenset(token for each in ids for token in torch.as_tensor(each).flatten().tolist())


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
            Field("past_key_values"),
            " holds tokens; suffolk.generate keeps its own cache, pass the whole text as input_ids",
        )


def _callers_streamer() -> Any:
    """The streamer of the ``generate`` call; None if there is none.

    transformers (5.24 and before) passes a streamer to its own loops only. A streamer that receives the prompt but no
    end would block its reader forever. This function therefore reads the streamer from the stack frame of ``generate``.
    """
    frame = inspect.currentframe()
    caller = frame.f_back.f_back if frame is not None and frame.f_back is not None else None
    return caller.f_locals.get("streamer") if caller is not None and caller.f_code.co_name == "generate" else None
