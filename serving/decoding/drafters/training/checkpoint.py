"""Saves and loads the state of a run in one file. The file is replaced atomically, so a killed process leaves a whole file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from suffolk.datastore.errors import Corruption, PermissionDenied, ResourceExhausted
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.files import fsync_directory
from suffolk.serving.decoding.drafters.neural.weights import DAMAGED

_FORMAT = 2


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """The state of torch's random generators: of the CPU, and of ``device`` if it is a CUDA device."""
    state = {"cpu": torch.get_rng_state()}
    return state | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else state


def save_checkpoint(
    path: Path,
    parameters: Iterable[torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    random: dict[str, torch.Tensor],
    facts: dict[str, Any],
) -> None:
    """Write parameters, the optimizer's state, ``random_state`` and ``facts`` (values of JSON) to ``path``.

    Raises:
        ResourceExhausted: the disk is full. PermissionDenied: the folder cannot be written to.
    """
    content = {
        "format": _FORMAT,
        "parameters": [each.detach() for each in parameters],
        "optimizer": optimizer.state_dict()["state"],
        "random": random,
        "facts": facts,
    }
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        failpoint("checkpoint.written")
        os.replace(temporary, path)
        failpoint("checkpoint.renamed")
        fsync_directory(path.parent)
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError if the disk is full
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise PermissionDenied(
                f"checkpoint {path}: cannot be written ({error}); choose another --output"
            ) from error
        raise ResourceExhausted(
            f"checkpoint {path}: cannot be written ({error}); free disk space and go on with --resume"
        ) from error


def load_checkpoint(
    path: Path, parameters: Iterable[torch.nn.Parameter], optimizer: torch.optim.Optimizer, device: torch.device
) -> dict[str, Any]:
    """Restore the state of ``save_checkpoint``, and return its ``facts``.

    Raises:
        Corruption: the file is damaged, or does not fit the head.
    """
    try:
        content = torch.load(path, "cpu", weights_only=True)
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']}, not {_FORMAT}")
        with torch.no_grad():
            for parameter, saved in zip(parameters, content["parameters"], strict=True):
                if saved.shape != parameter.shape or saved.dtype != parameter.dtype:
                    raise ValueError(f"a parameter is {_form(saved)}, and the head's is {_form(parameter)}")
                parameter.copy_(saved)
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": content["optimizer"], "param_groups": groups})
        torch.set_rng_state(content["random"]["cpu"])
        if device.type == "cuda" and "cuda" in content["random"]:
            torch.cuda.set_rng_state(content["random"]["cuda"], device)
        facts: dict[str, Any] = content["facts"]
    except DAMAGED as error:
        raise Corruption(
            f"checkpoint {path}: cannot be used ({' '.join(str(error).split())}); remove the folder {path.parent} and start again"
        ) from error
    return facts


def _form(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"
