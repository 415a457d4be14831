"""The model of a command: its options, and how it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from suffolk.cli.options.setting import Options
from suffolk.datastore.settings import MAX_THREADS, Within, option, rare
from suffolk.serving.decoding.engine.model.model_folder import find_folder

if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.model.target import Target

MODEL = "model folder in the Hugging Face layout, or hub name"
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")
EXACT = ("auto", "bits", "near-ties")


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(Options):
    """Where and how a model runs."""

    GROUP = "model"
    dtype: str = option(
        "auto", "data type of the weights; 'auto' is the type in which they are stored", choices=DTYPES, metavar="DTYPE"
    )
    device: str = option("auto", "auto, cpu, cuda, cuda:1 ...")
    threads: Annotated[int, Within(1, MAX_THREADS)] | None = rare(None, "CPU threads (default: torch's choice)")
    exact: str = rare(
        "auto",
        "'bits': drafts and other requests never change a text; 'near-ties': they may, where two logits are nearly equal; 'auto': "
        "'bits' in bf16 on CPUs with AMX (if its tiles fit the heads) or AVX-512 BF16, else 'near-ties'",
        choices=EXACT,
    )


def load_target(model: str, options: DeviceOptions, cache_tokens: int, accelerate: bool = True) -> Target:
    """Load a model without its notes and progress bars. ``accelerate``: as in ``Target.wrap``. Raises the errors of
    ``Target.load``."""
    find_folder(model)  # before torch is loaded, which takes seconds
    import torch

    from suffolk.serving.decoding.engine.model.target import Target
    from suffolk.serving.decoding.engine.model.target_loader import silence_transformers

    silence_transformers()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    return Target.load(model, options.dtype, options.device, cache_tokens, accelerate, options.exact)
