"""Times ``generate`` of transformers, with its own drafting methods and with Suffolk's ``custom_generate``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from transformers import AutoModelForCausalLM, StoppingCriteria

import suffolk
from suffolk.benchmarks.decode.way import Piece
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.loop.stats import GenerationStats
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

PLAIN = "transformers"
PROMPT_LOOKUP = "transformers prompt-lookup"
ASSISTED = "transformers assisted"
COMPILED = "transformers compiled"
CUSTOM = "transformers suffolk"
_LOOKUP_TOKENS = 10
"""The value that transformers' documentation uses."""


class TransformersModel:
    """Runs ``generate`` on copies of a model: one untouched, one for ``suffolk.generate``.

    Takes one request at a time.
    """

    def __init__(self, name: str, target: Target, assistant: str | None = None, datastore: str | None = None) -> None:
        """Load the model ``name`` again, with the target's dtype and on the target's device.

        ``assistant``: the draft model of assisted generation. ``datastore``: read by ``suffolk.generate``.
        """
        self._model, self._own = _load(name, target), _load(name, target)
        self._assistant = None if assistant is None else _load(assistant, target)
        self._datastore = datastore
        self._eos_ids = sorted(target.eos_ids)
        self._passes = 0
        self._own.register_forward_pre_hook(self._count)

    @property
    def ways(self) -> tuple[str, ...]:
        """The method names that ``run`` accepts."""
        # transformers compiles on accelerators only
        compiled = (COMPILED,) if self._model.device.type == "cuda" else ()
        assisted = () if self._assistant is None else (ASSISTED,)
        return (PLAIN, *compiled, PROMPT_LOOKUP, *assisted, CUSTOM)

    def run(self, way: str, prompt: Sequence[int], settings: SamplingSettings) -> tuple[list[int], dict[str, Any]]:
        """Generate; return the tokens, and statistics in the form of ``GenerationStats.to_dict``.

        The whole text after the prompt's pass is one piece.
        """
        options: dict[str, Any] = {"eos_token_id": None if settings.ignore_eos else self._eos_ids}
        if settings.temperature > 0:
            options |= {"do_sample": True, "temperature": settings.temperature, "top_p": settings.top_p, "top_k": 0}
        else:
            options |= {"do_sample": False}
        if way == PROMPT_LOOKUP:
            options["prompt_lookup_num_tokens"] = _LOOKUP_TOKENS
        elif way == ASSISTED:
            options["assistant_model"] = self._assistant
        elif way == COMPILED:
            options["cache_implementation"] = "static"  # transformers then compiles the forward pass
        elif way == CUSTOM:
            options |= {"custom_generate": suffolk.generate, "datastore": self._datastore}
        model = self._own if way == CUSTOM else self._model
        ids = torch.tensor([prompt], device=model.device)
        watch = _FirstToken(lambda: self._passes)
        begin = time.perf_counter()
        with torch.inference_mode():
            output = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=settings.max_new_tokens,
                pad_token_id=(self._eos_ids or [0])[0],
                stopping_criteria=[watch],
                **options,
            )
        end, process_end = time.perf_counter(), time.process_time()
        tokens = output[0, len(prompt) :].tolist()
        first = watch.length - len(prompt)
        steps = self._passes - watch.passes_before if way == CUSTOM else watch.calls - 1
        stats = GenerationStats(prompt_tokens=len(prompt), tokens=1 + len(tokens) - first, steps=steps)
        stats.seconds["prefill"] = watch.first - begin
        stats.seconds["forward"] = end - watch.first
        piece = Piece(0, len(tokens) - first, steps, end - watch.first, process_end - watch.process_first)
        return tokens, stats.to_dict() | {"tokens": len(tokens), "first_tokens": first, "pieces": [asdict(piece)]}

    def _count(self, module: torch.nn.Module, inputs: Any) -> None:
        self._passes += 1


class _FirstToken(StoppingCriteria):
    """A stopping criterion that never stops, and records when the first token appears.

    Attributes:
        calls: number of calls. Transformers' own loops call once per pass, ``suffolk.generate`` once per token.
        passes_before: ``passes()`` at the first call.
        length: sequence length at the first call; a pass that also verifies drafts adds several tokens.
        first, process_first: time and processor time at the first call.
    """

    def __init__(self, passes: Callable[[], int]) -> None:
        self._passes = passes
        self.calls = self.length = self.passes_before = 0
        self.first = self.process_first = 0.0

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        self.calls += 1
        if self.calls == 1:
            self.length, self.passes_before = input_ids.shape[1], self._passes()
            if input_ids.device.type == "cuda":
                torch.cuda.synchronize(input_ids.device)
            self.first, self.process_first = time.perf_counter(), time.process_time()
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def _load(name: str, target: Target) -> Any:
    model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=target.dtype)
    if model.get_input_embeddings().num_embeddings < target.vocab_size and name != target.name:
        raise InvalidArgument(f"model {name} has fewer ids than {target.name}; name one with the same tokenizer")
    model.generation_config.max_length = None
    for option in ("temperature", "top_p", "top_k", "repetition_penalty"):  # ignore the folder's defaults
        setattr(model.generation_config, option, None)
    return model.to(target.device).eval()
