"""The registry of drafters has an entry for each built-in drafter, and the entries of loaded plugins.

To add a drafter, add its folder and one entry here. Command-line options, help, metrics and ``by_source`` figures follow from the
entry. Other packages add drafters through entry points (``plugins.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from suffolk.datastore.checks import unknown
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters import plugins
from suffolk.serving.decoding.drafters.drafter_entry import DrafterEntry, DrafterOption
from suffolk.serving.decoding.engine.loop.draft_options import PREDICTION_SOURCE_ID

_ROOM = "suffolk.serving.decoding.drafters"
HEAD = DrafterOption("--head", "a trained head; may be repeated for heads of several kinds", Path, "FOLDER", True)
"""The option that all drafters with trained heads share. ``takes_head`` selects the drafter for a head's folder."""
_neural = partial(DrafterEntry, needs_option=True, needs_target=True, is_neural=True)

_ENTRIES = (
    DrafterEntry(
        name="datastore",
        source_id=0,
        loader=f"{_ROOM}.hybrid.drafter:load_datastores",
        options=(
            DrafterOption(
                "--datastore",
                "folder of a datastore, or grpc://HOST:PORT/NAME; may be repeated; all are searched",
                metavar="STORE",
                repeated=True,
            ),
        ),
        reads_datastores=True,
    ),
    DrafterEntry(name="prompt-lookup", source_id=1, loader=f"{_ROOM}.retrieval.prompt_lookup:load"),
    DrafterEntry(name="hybrid", source_id=None, loader=f"{_ROOM}.hybrid.drafter:load_hybrid", reads_datastores=True),
    _neural(
        name="hierarchy",
        source_id=6,
        loader=f"{_ROOM}.hierarchy.load:load",
        options=(
            DrafterOption(
                "--levels",
                "levels from the bottom up, each with the number of tokens that it drafts, as in "
                '"prompt-lookup:4 > exit-8:4 > draft-model:6". Each level verifies the draft of the level before it. '
                "prompt-lookup and datastore can only be the bottom level. exit-N is the model's first N layers; it uses a "
                "--head that was trained for these layers, if one is given. NAME@T:TOKENS samples at temperature T. 'suffolk "
                "hierarchy plan' finds the fastest levels",
                metavar="LEVELS",
            ),
        ),
        take=f"{_ROOM}.hierarchy.options:take",
        reads_datastores=True,
    ),
    _neural(
        name="draft-model",
        source_id=2,
        loader=f"{_ROOM}.neural.draft_model.drafter:load",
        options=(DrafterOption("--draft-model", "a smaller model with the same tokenizer", metavar="MODEL"),),
        take=f"{_ROOM}.neural.options:take_draft_model",
    ),
    _neural(
        name="early-exit",
        source_id=3,
        loader=f"{_ROOM}.neural.early_exit.drafter:load",
        options=(
            DrafterOption(
                "--exit-layers",
                "draft with the model's first N layers and its own output layer",
                int,
                metavar="N",
                rare=True,
            ),
            HEAD,
        ),
        take=f"{_ROOM}.neural.options:take_exit",
        takes_head=lambda config: False,
    ),
    _neural(
        name="redrafter",
        source_id=4,
        loader=f"{_ROOM}.neural.redrafter.drafter:load",
        options=(HEAD,),
        take=f"{_ROOM}.neural.options:take_head",
        takes_head=lambda config: config.get("model_type") == "recurrent_drafting_drafter",  # Apple's
        reads_states=True,
    ),
    _neural(
        name="eagle",
        source_id=5,
        loader=f"{_ROOM}.neural.eagle.load:load",
        options=(HEAD,),
        take=f"{_ROOM}.neural.options:take_head",
        takes_head=lambda config: True,  # config.json of EAGLE has no model_type; the loader rejects other folders
        reads_states=True,
    ),
    DrafterEntry(
        name="token-recycling",
        source_id=7,
        loader=f"{_ROOM}.retrieval.token_recycling:load",
        options=(
            DrafterOption(
                "--recycle",
                "draft also from the model's likely next tokens in this and earlier answers (token recycling)",
                bool,
                rare=True,
            ),
        ),
        needs_option=True,
        needs_target=True,
    ),
    DrafterEntry(name="prediction", source_id=PREDICTION_SOURCE_ID, loader=f"{_ROOM}.retrieval.prediction:load"),
    DrafterEntry(name="parallel-samples", source_id=9, loader=f"{_ROOM}.retrieval.parallel_samples:load"),
)
BUILT_IN = {entry.name: entry for entry in _ENTRIES}
"""The built-in drafters by name.

The first drafter that accepts an option's value takes it. Source ids are part of the wire format and never change.
"""
NONE = "none"
"""The drafter name that selects plain decoding."""


def names() -> tuple[str, ...]:
    """The names of all installed drafters, without ``NONE``. Imports no plugin."""
    return (*BUILT_IN, *plugins.names(BUILT_IN))


def find(name: str, others: Sequence[str] = ()) -> DrafterEntry:
    """The entry of the drafter called ``name``. Imports its package if the drafter is a plugin.

    Raises:
        InvalidArgument: no drafter has this name. The message also lists ``others``, the names that the caller handles itself.
        Unsupported: the plugin cannot be loaded (``plugins.load``).
    """
    if entry := BUILT_IN.get(name) or plugins.load(name, BUILT_IN):
        return entry
    raise unknown("drafter", name, (NONE, *names(), *others))


def known() -> list[DrafterEntry]:
    """The built-in entries, and the entries of loaded plugins."""
    return [*BUILT_IN.values(), *plugins.loaded()]


def source_name(bits: int) -> str:
    """The names of a node's source bits, joined by "+", as in "datastore+prompt-lookup"; empty for 0.

    An unknown bit is named source-N.
    """
    named = {entry.source: entry.name for entry in known()}
    marks = [1 << place for place in range(bits.bit_length()) if bits >> place & 1]
    return "+".join(named.get(mark, f"source-{mark.bit_length() - 1}") for mark in marks)


def source_bits(name: str) -> int:
    """The inverse of ``source_name``. Raises InvalidArgument if a source is unknown."""
    marks = {entry.name: entry.source for entry in known() if entry.source}
    marks |= {f"source-{place}": 1 << place for place in range(plugins.MOST_SOURCES)}
    found = 0
    for word in filter(None, name.split("+")):
        if word not in marks:
            raise InvalidArgument(f"source {name!r}: {word!r} is unknown; update suffolk if the source is new")
        found |= marks[word]
    return found


def neural_bits() -> int:
    """The source bits of drafters that run a model. Unknown bits are included."""
    searching = sum(entry.source for entry in known() if not entry.is_neural)
    return ((1 << plugins.MOST_SOURCES) - 1) & ~searching
