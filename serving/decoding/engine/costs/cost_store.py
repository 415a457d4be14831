"""Stores measured costs in JSON files, one for each model, device and version of the measured code."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import platform
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, PermissionDenied, SuffolkError, Unsupported
from suffolk.datastore.files import expand, write_json
from suffolk.datastore.settings import read_object
from suffolk.serving.decoding.engine.costs.cost_model import CostModel

if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.model.target import Target

log = logging.getLogger(__name__)
FORMAT = 1
KERNELS = 3
"""Version of the code on which costs depend. Raise it when attention, linear layers or kinds of passes change."""
_MAX_BYTES = 1 << 20
_TERMS = ("per_request", "per_key", "per_pair")
_KEYS = {"format", "target", "sizes", "seconds", *_TERMS}
_NOT_COSTS = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "_attn_implementation")


@dataclass(frozen=True, slots=True)
class CostKey:
    """The model, device and software that costs depend on. Costs are valid only for their own key.

    Attributes:
        model: digest of the model's config.
        dtype: data type of the parameters.
        parameters: number of parameters.
        device: name of the device.
        threads: CPU threads; 0 on other devices.
        torch: version of torch.
        kernels: version of the code on which costs depend (``KERNELS``).
    """

    model: str
    dtype: str
    parameters: int
    device: str
    threads: int
    torch: str
    kernels: int

    @staticmethod
    def of(target: Target) -> CostKey:
        """The key of ``target`` in this process."""
        import torch  # reading costs needs no torch

        from suffolk.serving.decoding.engine.model.int8_linear import is_compressed

        config = {name: value for name, value in target.model.config.to_dict().items() if name not in _NOT_COSTS}
        if is_compressed(target.model):  # int8 weights make passes faster
            config |= {"compressed": True}
        on_cpu = target.device.type == "cpu"
        return CostKey(
            model=_digest(config),
            dtype=str(target.dtype).removeprefix("torch."),
            parameters=sum(parameter.numel() for parameter in target.model.parameters()),
            device=_cpu_name() if on_cpu else torch.cuda.get_device_name(target.device),
            threads=torch.get_num_threads() if on_cpu else 0,
            torch=torch.__version__,
            kernels=KERNELS,
        )


@dataclass(frozen=True, slots=True)
class FoundCosts:
    """Costs, and their source: a file, or "measured"."""

    costs: CostModel
    source: str


def find_costs(target: Target, slots: int, file: Path | None = None, passes: str = "auto") -> FoundCosts:
    """The costs in ``file``. If ``file`` is None, the costs in the user's cache, or else costs measured now.

    ``slots`` and ``passes``: as in ``measure``.

    Raises:
        NotFound, Corruption, Unsupported, InvalidArgument: ``file`` cannot be used, as in ``load_costs``.
    """
    from suffolk.serving.decoding.engine.costs.cost_measurement import measure  # imports torch

    key = CostKey.of(target)
    if file is not None:
        return FoundCosts(load_costs(file, key), str(file))
    costs = stored_costs(key)
    if costs is None:
        log.info(
            "measuring how long passes of %s take; 'suffolk profile --model' measures once and stores it", target.name
        )
        return FoundCosts(measure(target, slots, passes=passes), "measured")
    return FoundCosts(costs, str(costs_path(key)))


def costs_path(key: CostKey) -> Path:
    """The file of ``key``, in $XDG_CACHE_HOME/suffolk/costs or ~/.cache/suffolk/costs. Raises NotFound: there is no home folder."""
    return expand(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "suffolk" / "costs" / f"{_digest(asdict(key))}.json"


def stored_costs(key: CostKey) -> CostModel | None:
    """The costs in the file of ``key``; None if there is no file, or the file is unusable. An unusable file is logged.

    Raises the same errors as ``costs_path``.
    """
    path = costs_path(key)
    try:
        return load_costs(path, key)
    except NotFound:
        return None
    except SuffolkError as error:
        log.warning("%s; continuing without it", error)
        return None


def save_costs(costs: CostModel, key: CostKey, path: Path) -> None:
    """Write the measured ``costs`` to ``path``. Replaces an existing file atomically.

    Raises:
        PermissionDenied, ResourceExhausted: the file cannot be written.
    """
    document = {
        "format": FORMAT, "target": asdict(key), "sizes": costs.sizes.astype(int).tolist(),
        "seconds": costs.measured.tolist(), **{term: getattr(costs, term) for term in _TERMS},
    }  # fmt: skip
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PermissionDenied(f"costs {path}: cannot be written ({error.strerror}); name another file") from error
    write_json(path, document)


def load_costs(path: Path, key: CostKey) -> CostModel:
    """The costs in ``path``, which must be for ``key``.

    Raises:
        NotFound: the file does not exist, or cannot be read.
        Corruption: the file has no costs, or is damaged.
        Unsupported: the file has another format version.
        InvalidArgument: the costs are for another model, device or version.
    """
    costs, found = read_costs(path)
    for name, value in asdict(key).items():
        if found[name] != value:
            raise InvalidArgument(
                f"costs {path}: made for {name} {found[name]!r}, and this is {value!r}; run 'suffolk profile' for it"
            )
    return costs


def read_costs(path: Path) -> tuple[CostModel, dict[str, Any]]:
    """The costs in ``path`` and the fields of their ``CostKey``. Accepts any key. Other errors are those of ``load_costs``."""
    document = read_object(path, f"costs {path}", "'suffolk profile' makes them", _MAX_BYTES)
    if document.get("format") != FORMAT:
        raise Unsupported(
            f"costs {path}: format is {document.get('format')!r}, not {FORMAT}; run 'suffolk profile' again"
        )
    if document.keys() != _KEYS:
        odd = ", ".join(sorted(document.keys() ^ _KEYS))
        raise Corruption(f"costs {path}: fields are unknown or missing ({odd}); run 'suffolk profile' again")
    names = {field.name for field in fields(CostKey)}
    found = document["target"]
    if not isinstance(found, dict) or found.keys() != names:
        raise Corruption(
            f"costs {path}: target does not have the fields {', '.join(sorted(names))}; run 'suffolk profile' again"
        )
    try:
        terms = (float(document[term]) for term in _TERMS)
        return CostModel(document["sizes"], document["seconds"], *terms), found
    except (TypeError, ValueError, OverflowError) as error:  # InvalidArgument is a ValueError
        raise Corruption(f"costs {path}: damaged ({error}); run 'suffolk profile' again") from error


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _cpu_name() -> str:
    with contextlib.suppress(OSError):  # Linux only
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
