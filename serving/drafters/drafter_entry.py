"""A drafter as the registry knows it: name, source id, options, loader. Imports nothing large."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from suffolk.datastore.errors import InvalidArgument

if TYPE_CHECKING:
    from suffolk.datastore.retriever import Retriever
    from suffolk.serving.drafters.calibration.calibration import Calibration
    from suffolk.serving.drafters.calibration.confidence import Confidence
    from suffolk.serving.drafters.retrieval.limits import Limits
    from suffolk.serving.engine.loop.drafter import Drafter
    from suffolk.serving.engine.model.target import Target

Options = Mapping[str, Any]
"""Values of options by their names, without those that are not given."""
Take = Callable[["DrafterEntry", Options], Options | None]


@dataclass(frozen=True, slots=True)
class DrafterOption:
    """One option of a drafter.

    Attributes:
        flag: on the command line, as in ``--draft-model``.
        help: one line for ``--help``.
        kind: the type of its value: str, Path, int or float; bool for a switch without a value.
        metavar: what stands for the value in ``--help``; empty for a switch.
        repeated: whether it may be given several times; its value is then a list.
        rare: whether it is set in a file or with ``--set``, and is no option of the command line.
    """

    flag: str
    help: str
    kind: type = str
    metavar: str = ""
    repeated: bool = False
    rare: bool = False

    @property
    def name(self) -> str:
        """The keyword in Python and the key in a configuration file: ``draft_model`` for ``--draft-model``."""
        return self.flag.lstrip("-").replace("-", "_")

    @property
    def usage(self) -> str:
        """What to write on the command line, as in ``--draft-model MODEL`` and ``--set exit_layers=N``."""
        return f"--set {self.name}={self.metavar or 'true'}" if self.rare else f"{self.flag} {self.metavar}".strip()


@dataclass(frozen=True, slots=True)
class PoolWeight:
    """How much a source's probabilities count beside others' when trees are merged (``csrc/drafting/merge.h``).

    Attributes:
        weight: beside other sources.
        unlisted: logarithm of the share of its rest that it leaves to a token that it does not propose.
        doubt: a source that expects less than this of all its nodes counts less.
    """

    weight: float = 1.0
    unlisted: float = -4.4
    doubt: float = 0.1


class CalibratedDrafter(Protocol):
    """A drafter whose own probabilities are weighed by how often they were right."""

    name: str

    def calibrate(self, confidence: Confidence) -> None:
        """Take ``confidence``, in which it goes on learning; called before anything is proposed."""
        ...


@dataclass(frozen=True, slots=True)
class LoadContext:
    """What a loader may use.

    Attributes:
        vocab_size: token ids of the target.
        target: the model that verifies drafts; None where drafters are made without one.
        slots: requests that the engine decodes at once.
        capacity: tokens of one request, with its largest draft tree.
        retrievers: open datastores; their owner closes them.
        limits: how far retrieval reaches; None for the defaults.
        calibration: what drafts have been worth, shared by all drafters of an engine; None to begin anew.
        dtype: of further models, as in ``Target.load``.
        prefetch: as in ``DatastoreDrafter``.
        models: drafters that are loaded, for a drafter that merges them.
    """

    vocab_size: int
    target: Target | None = None
    slots: int = 8
    capacity: int = 4096
    retrievers: Sequence[Retriever] = ()
    limits: Limits | None = None
    calibration: Calibration | None = None
    dtype: str = "auto"
    prefetch: bool | None = None
    models: Sequence[Drafter] = ()

    def require_target(self) -> Target:
        """The target. Raises InvalidArgument if there is none."""
        if self.target is None:
            raise InvalidArgument(
                "target is None; load one with suffolk.Target.load (on the command line: --model MODEL)"
            )
        return self.target

    def calibrate(self, drafter: CalibratedDrafter, label: str) -> None:
        """Let ``drafter`` learn in ``calibration``, if there is one, under its name and ``label``."""
        if self.calibration is not None:
            drafter.calibrate(self.calibration.network(f"{drafter.name} {label}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterEntry:
    """One drafter.

    Attributes:
        name: as in ``--drafter``, metrics and reports.
        source_id: bit 0..31 of ``DraftTree.sources`` that marks its nodes; None for a drafter that only merges others.
        loader: "module:function", called with a ``LoadContext`` and its ``Options``; gives the drafter. Imported when it is used.
        options: of the command line and of ``DrafterConfig``.
        needs_option: whether it exists only where one of its options is given.
        needs_target: whether its loader needs ``LoadContext.target``.
        is_network: whether it runs a model: its drafts cost passes, and hybrid drafts decide in each step whether to ask for them.
        reads_states: whether it reads the target's hidden states, which compiled passes do not give.
        reads_datastores: whether it drafts from datastores.
        pool_weight: how much its probabilities count beside other sources'.
        takes_head: for drafters of trained heads: whether a folder with this config.json, which another program wrote, holds one.
            Heads of our own say ``"suffolk": name``. None for other drafters.
        take: "module:function", called with this entry and all options: gives those that are this drafter's, None for none. It
            refuses bad values before anything is loaded. Empty: the options that are given.
        package: of a plugin, with its version; empty for a drafter of Suffolk's own.
    """

    name: str
    source_id: int | None
    loader: str
    options: tuple[DrafterOption, ...] = ()
    needs_option: bool = False
    needs_target: bool = False
    is_network: bool = False
    reads_states: bool = False
    reads_datastores: bool = False
    pool_weight: PoolWeight = PoolWeight()
    takes_head: Callable[[Mapping[str, Any]], bool] | None = None
    take: str = ""
    package: str = ""

    @property
    def source(self) -> int:
        """The bit that marks its nodes in ``DraftTree.sources``; 0 if it has none."""
        return 0 if self.source_id is None else 1 << self.source_id

    @property
    def usage(self) -> str:
        """The options that make it, as in ``--exit-layers N or --head FOLDER``."""
        return " or ".join(option.usage for option in self.options)

    def taken(self, options: Options) -> Options | None:
        """Those of ``options`` that are this drafter's; None for none. Raises as ``take``."""
        if self.take:
            take: Take = resolve(self.take)
            return take(self, options)
        return self.given(options)

    def given(self, options: Options) -> Options | None:
        """Those of ``options`` that have the names of its own; None for none."""
        names = {option.name for option in self.options}
        return {name: value for name, value in options.items() if name in names} or None


def resolve(path: str) -> Any:
    """What "module:name" names. Raises as ``import_module`` and ``getattr``."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
