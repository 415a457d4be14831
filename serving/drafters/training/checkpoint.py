"""Saves and loads a run's state in one file, replaced atomically: a killed process leaves the last one."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from suffolk.datastore.errors import Corruption, PermissionDenied, ResourceExhausted
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.manifest import fsync_directory

_FORMAT = 1
_CPU, _CUDA = "random.cpu", "random.cuda"


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """State of torch's random generators by name: uint8 tensors of the CPU's and, if there is one, the CUDA device's."""
    state = {_CPU: torch.get_rng_state()}
    return state | {_CUDA: torch.cuda.get_rng_state(device)} if device.type == "cuda" else state


def save_checkpoint(
    path: Path,
    parameters: Iterable[torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    random: dict[str, torch.Tensor],
    facts: dict[str, Any],
) -> None:
    """Write parameters, the optimizer's state, ``random_state`` and ``facts`` (JSON) to ``path``.

    Raises:
        ResourceExhausted: the disk is full. PermissionDenied: the folder cannot be written to.
    """
    tensors = {f"head.{number}": each.detach().contiguous() for number, each in enumerate(parameters)}
    for number, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": each.contiguous() for name, each in state.items()}
    tensors |= random
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        save_file(tensors, str(temporary), {"format": str(_FORMAT), "facts": json.dumps(facts)})
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        failpoint("checkpoint.written")
        os.replace(temporary, path)
        failpoint("checkpoint.renamed")
        fsync_directory(path.parent)
    except (OSError, SafetensorError) as error:
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
    """Restore what was saved; return the ``facts``.

    Raises:
        Corruption: the file is damaged, or does not fit the head.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            words = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        if words["format"] != str(_FORMAT):
            raise ValueError(f"format {words['format']}, not {_FORMAT}")
        facts: dict[str, Any] = json.loads(words["facts"])
        with torch.no_grad():
            for number, parameter in enumerate(parameters):
                saved = tensors.pop(f"head.{number}")
                if saved.shape != parameter.shape or saved.dtype != parameter.dtype:
                    raise ValueError(f"parameter {number} is {_form(saved)}, and the head's is {_form(parameter)}")
                parameter.copy_(saved)
        cpu, cuda = tensors.pop(_CPU), tensors.pop(_CUDA, None)
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": _optimizer_state(tensors), "param_groups": groups})
        torch.set_rng_state(cpu)
        if cuda is not None and device.type == "cuda":
            torch.cuda.set_rng_state(cuda, device)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise Corruption(
            f"checkpoint {path}: cannot be used ({' '.join(str(error).split())}); remove the folder {path.parent} and start again"
        ) from error
    return facts


def _optimizer_state(tensors: dict[str, torch.Tensor]) -> dict[int, dict[str, torch.Tensor]]:
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        _, number, key = name.split(".", 2)
        state.setdefault(int(number), {})[key] = tensor
    return state


def _form(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"
