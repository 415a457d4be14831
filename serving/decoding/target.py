"""The target: an unmodified transformers causal LM, and what the decoding loop needs to know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import DynamicCache

from datastore.errors import Corruption, InvalidArgument, NotFound, Unsupported
from serving.decoding import memory, tree_attention
from serving.decoding.kv_cache import KVCache, LayerShape, Shapes
from serving.decoding.row_linear import accelerate as accelerate_layers
from serving.decoding.tree_attention import TreeLayout

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
PREFILL_CHUNK = 512


@dataclass(frozen=True, slots=True)
class Target:
    """A loaded model. Made by ``Target.load`` or, from a model at hand, by ``Target.wrap``; safe to share between threads.

    Attributes:
        name: how messages call it.
        model: the transformers model, in evaluation mode.
        tokenizer: its transformers tokenizer; None where only token ids are wanted.
        vocab_size: ids that can be both drawn and fed back are 0..vocab_size-1.
        context_length: tokens a sequence may have; None if the config does not limit it.
        eos_ids: tokens that end a text.
        shapes: what each layer caches.
    """

    name: str
    model: Any
    tokenizer: Any
    vocab_size: int
    context_length: int | None
    eos_ids: frozenset[int]
    shapes: Shapes

    @staticmethod
    def load(
        name: str, dtype: str = "auto", device: str = "auto", cache_tokens: int = 4096, accelerate: bool = True
    ) -> Target:
        """Load a model folder or hub name, with its tokenizer.

        Args:
            name: a folder with config.json and weights, or a hub name.
            dtype: auto (as stored), float32, bfloat16, float16 or float64.
            device: auto (cuda if there is one, else cpu) or a torch device.
            cache_tokens: how many tokens of cache must fit beside the weights.
            accelerate: as for ``wrap``.

        Raises:
            NotFound: no such folder or model.
            InvalidArgument: unknown dtype or device.
            ResourceExhausted: weights and cache do not fit into the memory available.
            Unsupported: not a causal LM, or one whose cache or attention cannot hold draft trees.
        """
        place, kind = _device(device), _dtype(dtype)
        folder = _folder(name)
        config = _from_pretrained(AutoConfig, name)
        if folder is not None:
            loaded = kind or getattr(config, "dtype", None)
            itemsize = (loaded or torch.float32).itemsize
            cached = min(cache_tokens, getattr(config, "max_position_embeddings", None) or cache_tokens)
            needed = memory.weight_bytes(folder, loaded), memory.cache_bytes(config, cached, itemsize)
            memory.require_memory(name, *needed, memory.available_memory(place), place)
        with memory.memory_guard(f"model {name}"):
            model = _from_pretrained(AutoModelForCausalLM, name, dtype=kind or "auto").to(place)
            return Target.wrap(model, _from_pretrained(AutoTokenizer, name), name, accelerate)

    @staticmethod
    def wrap(model: Any, tokenizer: Any = None, name: str = "", accelerate: bool = True) -> Target:
        """A target from a model in memory; checks that the model honours tree masks (a few short forward passes).

        With ``accelerate`` the linear layers of a model on a CPU may use a kernel for few rows (``row_linear.py``).

        Raises:
            Unsupported: it does not, or keeps state that is not keys and values.
        """
        from serving.decoding import probe  # it drives a Target

        model.eval()
        if accelerate:
            accelerate_layers(model)
        name = name or type(model).__name__
        config = model.config.get_text_config(decoder=True)
        embeddings = model.get_input_embeddings().num_embeddings
        head = model.get_output_embeddings()
        target = Target(
            name=name,
            model=model,
            tokenizer=tokenizer,
            vocab_size=min(embeddings, head.weight.shape[0]) if head is not None else embeddings,
            context_length=getattr(config, "max_position_embeddings", None),
            eos_ids=_eos_ids(model),
            shapes=probe.layer_shapes(model, name),
        )
        probe.check_tree_attention(target)
        return target

    @property
    def device(self) -> torch.device:
        return self.model.device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype  # type: ignore[no-any-return]

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache for ``capacity`` tokens, rows of rejected nodes included."""
        with memory.memory_guard(f"cache for {capacity} tokens"):
            layers = DynamicCache(config=self.model.config)
            return KVCache(layers, self.shapes, capacity, self.dtype, self.device)

    @torch.inference_mode()
    def prefill(self, tokens: Sequence[int] | npt.NDArray[np.integer[Any]], cache: KVCache) -> torch.Tensor:
        """Append ``tokens`` to the cache; the logits [1, vocab] after the last of them."""
        ids = torch.as_tensor(np.asarray(tokens, np.int64), device=self.device)
        for start in range(0, len(ids), PREFILL_CHUNK):
            chunk = ids[start : start + PREFILL_CHUNK]
            positions = torch.arange(cache.length, cache.length + len(chunk), device=self.device)
            logits = self._forward(chunk, positions, None, cache, 1)
            cache.advance(len(chunk))
        return logits

    @torch.inference_mode()
    def forward_tree(self, layout: TreeLayout, cache: KVCache) -> torch.Tensor:
        """One pass over a tree's rows behind the cached tokens: logits [rows, vocab]. The caller says what to keep."""
        ids = torch.from_numpy(layout.tokens).to(self.device)
        positions = torch.from_numpy(layout.depths).to(self.device) + cache.length
        masks = None if len(ids) == 1 else self._masks(layout, cache.length)
        return self._forward(ids, positions, masks, cache, len(ids))

    def synchronize(self) -> None:
        """Wait for the device, so that the clock measures work and not its launch."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _forward(
        self, ids: torch.Tensor, positions: torch.Tensor, masks: Any, cache: KVCache, logits_to_keep: int
    ) -> torch.Tensor:
        output = self.model(
            input_ids=ids[None],
            attention_mask=masks,
            position_ids=positions[None],
            past_key_values=cache.layers,
            use_cache=True,
            logits_to_keep=logits_to_keep,
        )
        logits: torch.Tensor = output.logits[0, -logits_to_keep:, : self.vocab_size]
        return logits

    def _masks(self, layout: TreeLayout, cached: int) -> torch.Tensor | dict[str, torch.Tensor]:
        """The additive 4-D mask; where layers differ in their window, one per layer type."""
        windows = sorted({shape.window for shape in self.shapes if shape is not None}, key=lambda window: window or 0)
        if len(windows) == 1:
            return self._additive(tree_attention.mask(layout, cached, windows[0]))
        names: dict[int | None, str] = {None: "full_attention"}
        return {
            names.get(window, "sliding_attention"): self._additive(tree_attention.mask(layout, cached, window))
            for window in windows
        }

    def _additive(self, seen: npt.NDArray[np.bool_]) -> torch.Tensor:
        hidden = torch.from_numpy(~seen).to(self.device)
        additive = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device)
        return additive.masked_fill_(hidden, torch.finfo(self.dtype).min)[None, None]


def _eos_ids(model: Any) -> frozenset[int]:
    settings = getattr(model, "generation_config", None)
    ids = getattr(settings, "eos_token_id", None)
    if ids is None:
        ids = getattr(model.config.get_text_config(decoder=True), "eos_token_id", None)
    return frozenset(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidArgument(
            f"device {name!r} cannot be used ({str(error).splitlines()[0]}); use auto, cpu or cuda"
        ) from error
    return device


def _dtype(name: str) -> torch.dtype | None:
    if name != "auto" and name not in DTYPES:
        raise InvalidArgument(f"dtype {name!r} is unknown; use auto, {', '.join(DTYPES)}")
    return DTYPES.get(name)


def _folder(name: str) -> Path | None:
    """The model's folder if ``name`` is a path, None if it can be a hub name."""
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise NotFound(f"model folder {name}: it has no config.json; name a folder in the Hugging Face layout")
        return path
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or path.exists():
        raise NotFound(f"model folder {name} does not exist; name a folder in the Hugging Face layout, or a hub name")
    return None


def _from_pretrained(loader: Any, name: str, **options: Any) -> Any:
    path = Path(name).expanduser()
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
