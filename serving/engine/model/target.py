"""The target: a transformers causal LM with our attention, and what the decoding loop needs to know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import DynamicCache

from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, Unsupported
from suffolk.datastore.hub import cached_file, list_files
from suffolk.datastore.paths import expand
from suffolk.serving.engine.model import memory, tree_attention
from suffolk.serving.engine.model.kv_cache import KVCache, LayerShape, Shapes
from suffolk.serving.engine.model.model_folder import find_folder
from suffolk.serving.engine.model.pass_result import PassResult
from suffolk.serving.engine.model.skinny_gemm import accelerate as accelerate_layers
from suffolk.serving.engine.model.split_attention import measure_split
from suffolk.serving.engine.model.transfer import to_device
from suffolk.serving.engine.model.tree_attention import PackedRows, find_places
from suffolk.serving.engine.model.tree_layout import TreeLayout, chain
from suffolk.serving.engine.policy.prefill_budget import PREFILL_CHUNK

if TYPE_CHECKING:
    from suffolk.serving.engine.model.compiled_pass import CompiledPass

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
ATTENTION = ("auto", "masked", "split")


@dataclass(frozen=True, slots=True)
class Target:
    """A loaded model. Made by ``Target.load`` or, from a model at hand, by ``Target.wrap``. Any number of threads may use it, each
    with a cache of its own.

    Attributes:
        name: how messages call it.
        model: the transformers model, in evaluation mode.
        tokenizer: its transformers tokenizer; None where only token ids are wanted.
        vocab_size: ids that can be both drawn and fed back are 0..vocab_size-1.
        context_length: tokens a sequence may have; None if the config does not limit it.
        eos_ids: tokens that end a text.
        shapes: what each layer caches.
        split_from: from how many cached tokens on a tree's attention is split (``split_attention.py``); infinity for never.
        compiled: its compiled pass, once it has one (``compiled_pass.py``).
    """

    name: str
    model: Any
    tokenizer: Any
    vocab_size: int
    context_length: int | None
    eos_ids: frozenset[int]
    shapes: Shapes
    split_from: float = float("inf")
    compiled: list[CompiledPass] = field(default_factory=list, repr=False, compare=False)

    @staticmethod
    def load(
        name: str,
        dtype: str = "auto",
        device: str = "auto",
        cache_tokens: int = 4096,
        accelerate: bool = True,
        attention: str = "auto",
    ) -> Target:
        """Load a model folder or hub name, with its tokenizer.

        Args:
            name: a folder with config.json and weights, or a hub name.
            dtype: auto (as stored), float32, bfloat16, float16 or float64.
            device: auto (cuda if there is one, else cpu) or a torch device.
            cache_tokens: how many tokens of cache must fit beside the weights.
            accelerate, attention: as for ``wrap``.

        Raises:
            NotFound: no such folder or model.
            InvalidArgument: unknown dtype, device or attention.
            ResourceExhausted: weights and cache do not fit into the memory available.
            Unsupported: not a causal LM, or one whose cache or attention cannot hold draft trees.
        """
        place, kind = _device(device), _dtype(dtype)
        folder, source = find_folder(name), _source(name)
        config = _from_pretrained(AutoConfig, name, **source)
        if folder is not None:
            loaded = kind or getattr(config, "dtype", None)
            itemsize = (loaded or torch.float32).itemsize
            cached = min(cache_tokens, getattr(config, "max_position_embeddings", None) or cache_tokens)
            needed = memory.weight_bytes(folder, loaded), memory.cache_bytes(config, cached, itemsize)
            memory.require_memory(name, *needed, memory.available_memory(place), place)
        with memory.memory_guard(f"model {name}"):
            model = _from_pretrained(AutoModelForCausalLM, name, dtype=kind or "auto", **source).to(place)
            return Target.wrap(model, _from_pretrained(AutoTokenizer, name, **source), name, accelerate, attention)

    @staticmethod
    def wrap(
        model: Any, tokenizer: Any = None, name: str = "", accelerate: bool = True, attention: str = "auto"
    ) -> Target:
        """A target from a model in memory, which it takes over: our attention replaces the model's own.

        A few short forward passes with either attention prove that they agree on a draft tree.

        With ``accelerate`` the linear layers of a model on a CPU may use a kernel for few rows (``row_linear.py``).
        ``attention`` of trees: masked, split (``split_attention.py``), or auto: what a measurement of milliseconds says.

        Raises:
            InvalidArgument: another ``attention``.
            Unsupported: they do not, the model's attention cannot be replaced, or it keeps state that is not keys and values.
        """
        from suffolk.serving.engine.model import probe  # it drives a Target

        if attention not in ATTENTION:
            raise InvalidArgument(f"attention {attention!r} is unknown; use {', '.join(ATTENTION)}")
        model.eval()
        if accelerate:
            accelerate_layers(model)
        name = name or type(model).__name__
        shapes = probe.layer_shapes(model, name)
        expected = probe.run_branches(model)
        model.set_attn_implementation(tree_attention.NAME)
        config = model.config.get_text_config(decoder=True)
        target = Target(
            name=name,
            model=model,
            tokenizer=tokenizer,
            vocab_size=probe.vocab_size(model),
            context_length=_context_length(config),
            eos_ids=_eos_ids(model),
            shapes=shapes,
            split_from=_split_from(model, shapes)
            if attention == "auto"
            else {"masked": float("inf"), "split": 0.0}[attention],
        )
        probe.check_tree_attention(target, expected)
        return target

    @property
    def device(self) -> torch.device:
        return self.model.device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype  # type: ignore[no-any-return]

    @property
    def layers(self) -> int:
        """How many layers it has; layer 0 of hidden states is the embedding, the last is what the output layer reads."""
        return int(self.model.config.get_text_config(decoder=True).num_hidden_layers)

    @property
    def hidden_size(self) -> int:
        """The width of its hidden states."""
        return int(self.model.config.get_text_config(decoder=True).hidden_size)

    def new_cache(self, slots: int, capacity: int) -> KVCache:
        """An empty cache for ``slots`` requests of ``capacity`` tokens each, rows of rejected nodes included.

        Raises:
            ResourceExhausted: no memory for it.
        """
        with memory.memory_guard(f"cache for {slots} x {capacity} tokens"):
            layers = DynamicCache(config=self.model.config)
            return KVCache(layers, self.shapes, slots, capacity, self.dtype, self.device)

    def forward(
        self,
        cache: KVCache,
        slots: Sequence[int],
        layouts: Sequence[TreeLayout],
        wanted: Sequence[int],
        layers: Sequence[int] = (),
    ) -> PassResult:
        """One pass over the rows of several requests, each behind the cached tokens of its slot.

        ``wanted``: of how many of its last rows each request wants the logits; they come in order. ``layers``: whose hidden states
        are wanted, 0..``self.layers``. The caller says afterwards what the cache keeps.
        """
        packed, rows = self.place(cache, slots, layouts)
        ends = np.cumsum([len(layout) for layout in layouts])
        chosen = np.concatenate([np.arange(end - count, end) for end, count in zip(ends, wanted, strict=True)])
        kept = None if len(chosen) == packed.shape[1] else to_device(chosen, self.device)
        return self._run(packed, rows, cache, kept, layers)

    def place(
        self, cache: KVCache, slots: Sequence[int], layouts: Sequence[TreeLayout]
    ) -> tuple[torch.Tensor, PackedRows]:
        """Where the rows of the next pass stand: int64[3, rows] (token ids, positions, cache rows, of which the cache is told), and
        what they see.
        """
        found = find_places(cache.lengths, cache.capacity, slots, layouts, self.split_from)
        ids = np.concatenate([layout.tokens for layout in layouts])
        packed = to_device(np.stack([ids, found.positions, found.rows]), self.device)
        cache.place(packed[2])
        return packed, PackedRows(found.spans)

    def prefill(
        self, tokens: Sequence[int] | npt.NDArray[np.integer[Any]], cache: KVCache, slot: int = 0
    ) -> torch.Tensor:
        """Append ``tokens`` to a slot; the logits [1, vocab] after the last of them."""
        ids = np.asarray(tokens, np.int64)
        for start in range(0, len(ids), PREFILL_CHUNK):
            part = chain(ids[start : start + PREFILL_CHUNK])
            logits = self.forward(cache, [slot], [part], [1]).logits
            cache.lengths[slot] += len(part)
        return logits

    def synchronize(self) -> None:
        """Wait for the device, so that the clock measures work and not its launch."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @torch.inference_mode()
    def _run(
        self,
        packed: torch.Tensor,
        rows: PackedRows,
        cache: KVCache,
        kept: torch.Tensor | None,
        layers: Sequence[int],
    ) -> PassResult:
        output = self.model(
            input_ids=packed[0][None],
            position_ids=packed[1][None],
            past_key_values=cache.layers,
            use_cache=True,
            logits_to_keep=0 if kept is None else kept,
            suffolk_rows=rows,
            output_hidden_states=bool(layers),
        )
        return PassResult.of(output, layers, self.vocab_size)


def read_context_length(name: str) -> int | None:
    """The ``context_length`` of the model of that name, of which only the config is read. Raises as ``Target.load``."""
    config = _from_pretrained(AutoConfig, name, **_source(name))
    return _context_length(config.get_text_config(decoder=True))


def read_vocab_size(name: str) -> int:
    """The ids that the model of that name knows, of which only the config is read. Raises as ``Target.load``."""
    config = _from_pretrained(AutoConfig, name, **_source(name))
    return int(config.get_text_config(decoder=True).vocab_size)


def _context_length(config: Any) -> int | None:
    """The tokens that the model takes. Of ``longrope`` those that its short frequencies are for: its longest row says which ones a
    pass takes, so that drafts and other requests would change the text."""
    longest: int | None = getattr(config, "max_position_embeddings", None)
    ropes = getattr(config, "rope_parameters", None) or {}
    for rope in [ropes] if "rope_type" in ropes else ropes.values():
        if isinstance(rope, dict) and rope.get("rope_type") == "longrope":
            short = rope.get("original_max_position_embeddings") or getattr(
                config, "original_max_position_embeddings", None
            )
            longest = short if longest is None else min(longest, short or longest)
    return longest


def _split_from(model: Any, shapes: Shapes) -> float:
    """What ``measure_split`` says of the model's first layer with a cache."""
    config = model.config.get_text_config(decoder=True)
    shape = next(shape for shape in shapes if shape is not None)
    longest = getattr(config, "max_position_embeddings", None) or float("inf")
    heads = getattr(config, "num_attention_heads", shape.heads)
    return measure_split(heads, shape, model.dtype, model.device, longest)


def _eos_ids(model: Any) -> frozenset[int]:
    settings = getattr(model, "generation_config", None)
    ids = getattr(settings, "eos_token_id", None)
    if ids is None:
        ids = getattr(model.config.get_text_config(decoder=True), "eos_token_id", None)
    return frozenset(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    usable = "auto, cpu or cuda" if torch.cuda.is_available() else "auto or cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:  # torch's text lists all devices that it was ever written for
        raise InvalidArgument(f"device {name!r} is unknown; use {usable}") from error
    if device.type not in ("cpu", "cuda"):  # of the others torch says what is wrong in pages, if at all
        raise InvalidArgument(f"device {name!r} is of a kind that models do not run on here; use {usable}")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidArgument(f"device {name!r} cannot be used ({_first_line(error)}); use {usable}") from error
    return device


def _dtype(name: str) -> torch.dtype | None:
    if name != "auto" and name not in DTYPES:
        raise InvalidArgument(f"dtype {name!r} is unknown; use auto, {', '.join(DTYPES)}")
    return DTYPES.get(name)


def _source(name: str) -> dict[str, bool]:
    """What ``from_pretrained`` needs besides: transformers asks a hub that does not answer again and again, for each file, so it is
    asked once before. Raises NotFound: no such folder, and neither the hub nor its cache has the model."""
    if find_folder(name) is not None:
        return {}
    try:
        list_files(name)
    except NotFound as error:
        if cached_file(name, "config.json") is None:
            raise NotFound(f"model {error}; give the path of a folder in the Hugging Face layout") from error
        return {"local_files_only": True}
    return {}


def _from_pretrained(loader: Any, name: str, **options: Any) -> Any:
    path = expand(name)
    try:
        return loader.from_pretrained(str(path) if path.is_dir() else name, **options)
    except OSError as error:  # what transformers raises for anything missing
        raise NotFound(
            f"model {name}: {_first_line(error)}; check the name and that all its files are there"
        ) from error
    except SafetensorError as error:
        raise Corruption(f"model {name}: its weights are damaged ({_first_line(error)}); fetch them again") from error
    except (ValueError, KeyError) as error:
        raise Unsupported(f"model {name}: transformers cannot load it as a causal LM ({_first_line(error)})") from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


__all__ = ["DTYPES", "LayerShape", "Target"]
