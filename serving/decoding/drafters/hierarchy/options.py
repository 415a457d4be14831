"""Selects the options of a hierarchy: its levels, and the draft model and trained exits that they name."""

from __future__ import annotations

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.drafter_entry import DrafterEntry, Options
from suffolk.serving.decoding.drafters.hierarchy.stack_spec import DRAFT_MODEL, read_stack
from suffolk.serving.decoding.drafters.neural.early_exit.config import KIND as EARLY_EXIT
from suffolk.serving.decoding.drafters.neural.early_exit.config import ExitConfig
from suffolk.serving.decoding.drafters.neural.options import kind_of


def take(entry: DrafterEntry, options: Options) -> Options | None:
    """See ``DrafterEntry.take``. The models of levels are taken from other drafters' options.

    Raises the errors of ``read_stack``, ``kind_of`` and ``ExitConfig.load``, and InvalidArgument if a level lacks its draft model.
    """
    given = entry.given(options)
    if given is None:
        return None
    stack = read_stack(given["levels"])
    taken = dict(given)
    if any(level.name == DRAFT_MODEL for level in stack):
        if "draft_model" not in options:
            raise InvalidArgument(f"level {DRAFT_MODEL} needs a model (on the command line: --draft-model MODEL)")
        taken["draft_model"] = options["draft_model"]
    exits = {level.exit_layers for level in stack if level.exit_layers is not None}
    levels = [
        each
        for each in options.get("head", ())
        if kind_of(each) == EARLY_EXIT and ExitConfig.load(each).layers in exits
    ]
    return taken | {"head": levels} if levels else taken
