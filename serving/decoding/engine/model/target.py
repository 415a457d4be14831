"""The target: the language model whose text the engine produces."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any

from suffolk.serving.decoding.engine.model import probe, tree_attention
from suffolk.serving.decoding.engine.model.language_model import LanguageModel
from suffolk.serving.decoding.engine.model.memory import memory_guard
from suffolk.serving.decoding.engine.model.same_bits import bits_problem, kernel_lines, kernels, make_even, wants_bits
from suffolk.serving.decoding.engine.model.skinny_gemm import accelerate as accelerate_layers
from suffolk.serving.decoding.engine.model.target_loader import context_length, eos_ids, load_model

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target(LanguageModel):
    """A causal LM with its tokenizer and the limits of its texts. Made by ``load`` or ``wrap``. As thread-safe as
    ``LanguageModel``.

    Attributes:
        tokenizer: its transformers tokenizer; None if only token ids are used.
        context_length: the most tokens of a sequence; None if the config sets no limit.
        eos_ids: tokens that end a text.
    """

    tokenizer: Any = field(repr=False)
    context_length: int | None
    eos_ids: frozenset[int]

    @staticmethod
    def load(
        name: str,
        dtype: str = "auto",
        device: str = "auto",
        cache_tokens: int = 4096,
        accelerate: bool = True,
        exact: str = "auto",
    ) -> Target:
        """Load a model folder or hub name, with its tokenizer.

        Args:
            name: a folder with config.json and weights, or a hub name.
            dtype: auto (as stored), float32, bfloat16, float16 or float64.
            device: auto (cuda if there is one, else cpu) or a torch device.
            cache_tokens: tokens of a cache that must fit into memory beside the weights.
            accelerate, exact: as for ``wrap``.

        Raises:
            NotFound: no such folder or model.
            InvalidArgument: unknown dtype or device, or ``wrap`` refuses ``exact``.
            ResourceExhausted: weights and cache do not fit into the memory available.
            Unsupported: the model is not a causal LM, or its cache or attention cannot hold draft trees.
        """
        with memory_guard(f"model {name}"):
            model, tokenizer = load_model(name, dtype, device, cache_tokens)
            return Target.wrap(model, tokenizer, name, accelerate, exact)

    @staticmethod
    def wrap(model: Any, tokenizer: Any = None, name: str = "", accelerate: bool = True, exact: str = "auto") -> Target:
        """Make a target of a transformers model in memory. Tree attention permanently replaces the model's own attention.

        A few short forward passes check that both attentions agree on a draft tree.

        Args:
            model: a causal LM of transformers.
            tokenizer: its tokenizer, if texts are to be encoded or decoded.
            name: its name in messages; default: its class.
            accelerate: let linear layers on a CPU use the kernel for few rows (``skinny_gemm.py``).
            exact: whether drafts, other requests and the division of a prompt into passes may change a text at a near-tie of
                two logits; see ``same_bits.py``. If ``bits`` is impossible for the model, texts may change, with a warning.

        Raises:
            InvalidArgument: ``exact`` is unknown, or is ``bits`` for a dtype or device without the kernels.
            Unsupported: the two attentions disagree, the model's attention cannot be replaced, or it keeps state
                other than keys and values.
        """
        model.eval()
        name = name or type(model).__name__
        shapes = probe.layer_shapes(model, name)
        bits = wants_bits(exact, model.dtype, model.device, accelerate, shapes)
        if accelerate:
            accelerate_layers(model, bits)
        if bits:
            make_even(model)
        expected = probe.run_branches(model)
        model.set_attn_implementation(tree_attention.NAME)
        target = Target(
            name=name,
            model=model,
            vocab_size=probe.vocab_size(model),
            shapes=shapes,
            tokenizer=tokenizer,
            context_length=context_length(model.config.get_text_config(decoder=True)),
            eos_ids=eos_ids(model),
            same_bits=bits,
        )
        probe.check_tree_attention(target, expected)
        return _checked(target) if bits else target


def _checked(target: Target) -> Target:
    """``target``, without ``same_bits`` if a trial shows a difference."""
    problem = bits_problem(target)
    if problem is None:
        log.info("model %s: %s", target.name, "\n".join(kernel_lines(kernels(target))))
        return target
    log.warning("model %s: drafts may change its text at near-ties of logits (%s)", target.name, problem)
    return replace(target, same_bits=False)
