"""Drafters by name, from the registry's entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from suffolk.datastore.errors import InvalidArgument, SuffolkError, Unsupported
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig
from suffolk.serving.decoding.drafters.drafter_entry import DrafterEntry, LoadContext, Options, resolve
from suffolk.serving.decoding.drafters.registry import NONE, find
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.user_code_errors import USER_CODE_ERRORS, first_line

if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.model.target import Target


def load_drafters(
    target: Target,
    config: DrafterConfig,
    slots: int = 8,
    capacity: int = 4096,
    retrievers: Sequence[Retriever] = (),
    limits: Limits | None = None,
    calibration: Calibration | None = None,
    only: str | None = None,
) -> list[Drafter]:
    """Load the drafters of ``config`` for an engine. This takes seconds, because the passes of their models are timed.

    Args:
        target: the model that verifies drafts.
        config: the drafters and their options.
        only: load only this drafter; None for all.
        slots, capacity, retrievers, limits, calibration: as in ``LoadContext``.

    Raises the errors of ``DrafterConfig.parts`` and of the drafters' loaders, and Unsupported if the loader of a plugin fails.
    """
    context = LoadContext(target.vocab_size, target, slots, capacity, retrievers, limits, calibration, config.dtype)
    parts = config.parts()
    return [_load(find(name), context, parts[name]) for name in parts if only in (None, name)]


def make_drafter(
    name: str | None,
    vocab_size: int,
    retrievers: Retriever | list[Retriever] | tuple[Retriever, ...] = (),
    limits: Limits | None = None,
    models: Sequence[Drafter] = (),
    calibration: Calibration | None = None,
    prefetch: bool | None = None,
) -> Drafter | None:
    """Create the drafter called ``name``; None for None or "none".

    Args:
        vocab_size: the target's.
        retrievers: one open datastore, or several, which are all searched.
        models: drafters of ``load_drafters``; hybrid drafts merge all of them.
        limits, calibration, prefetch: as in ``LoadContext``.

    Raises:
        InvalidArgument: the name is unknown, or its datastore or loaded drafter is missing.
        Unsupported: a plugin that cannot be loaded.
    """
    if name is None or name == NONE:
        return None
    for model in models:
        if model.name == name:
            return model
    entry = find(name)
    if entry.needs_option or entry.needs_target:
        raise InvalidArgument(
            f"drafter {name} needs a model that is loaded (on the command line: {entry.usage or f'--drafter {name}'})",
        )
    stores = retrievers if isinstance(retrievers, tuple | list) else [retrievers]
    context = LoadContext(
        vocab_size, retrievers=stores, limits=limits, calibration=calibration, prefetch=prefetch, models=models
    )
    return _load(entry, context, {})


def _load(entry: DrafterEntry, context: LoadContext, options: Options) -> Drafter:
    if not entry.package:
        drafter: Drafter = resolve(entry.loader)(context, options)
        return drafter
    where = f"drafter {entry.name} of package {entry.package}"
    try:
        drafter = resolve(entry.loader)(context, options)
    except SuffolkError:
        raise
    except USER_CODE_ERRORS as error:
        raise Unsupported(f"{where}: {entry.loader} failed: {first_line(error)}; fix or update the package") from error
    if getattr(drafter, "name", None) != entry.name:
        raise Unsupported(
            f"{where}: {entry.loader} gave {drafter!r}; it must be a drafter whose name is {entry.name!r}"
        )
    return drafter
