"""The registry's entry for one drafter: name, source id, options and loader. Imports nothing large."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from suffolk.datastore.errors import InvalidArgument

if TYPE_CHECKING:
    from suffolk.datastore.retriever import Retriever
    from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
    from suffolk.serving.decoding.drafters.calibration.confidence import Confidence
    from suffolk.serving.decoding.drafters.retrieval.limits import Limits
    from suffolk.serving.decoding.engine.loop.drafter import Drafter
    from suffolk.serving.decoding.engine.model.target import Target

Options = Mapping[str, Any]
"""Values of the given options, by name."""


@dataclass(frozen=True, slots=True)
class DrafterOption:
    """One option of a drafter.

    Attributes:
        flag: its name on the command line, as in ``--draft-model``.
        help: the text for ``--help``.
        kind: the type of its value: str, Path, int or float; bool for a switch without a value.
        metavar: the placeholder of the value in ``--help``; empty for a switch.
        repeated: whether the option may be given several times. Its value is then a list.
        rare: whether the option has no flag of its own, and is set in a file or with ``--set``.
    """

    flag: str
    help: str
    kind: type = str
    metavar: str = ""
    repeated: bool = False
    rare: bool = False

    @property
    def name(self) -> str:
        """The keyword in Python and the key in configuration files, as ``draft_model`` for ``--draft-model``."""
        return self.flag.lstrip("-").replace("-", "_")

    @property
    def usage(self) -> str:
        """Its form on the command line, as in ``--draft-model MODEL`` and ``--set exit_layers=N``."""
        return f"--set {self.name}={self.metavar or 'true'}" if self.rare else f"{self.flag} {self.metavar}".strip()


class CalibratedDrafter(Protocol):
    """A drafter with calibrated probabilities. The calibration learns from the tokens that the target accepts."""

    name: str

    def calibrate(self, confidence: Confidence) -> None:
        """Use ``confidence`` as the calibrator, and keep learning in it. Called before the first ``propose``."""
        ...


@dataclass(frozen=True, slots=True)
class LoadContext:
    """The engine's settings and resources, for loaders.

    Attributes:
        vocab_size: the target's vocabulary size.
        target: the model that verifies drafts; None if drafters are made without one.
        slots: the number of requests that the engine decodes at once.
        capacity: the most tokens of one request, its largest draft tree included.
        retrievers: open datastores. The caller closes them.
        limits: bounds of retrieval; None for the defaults.
        calibration: learned calibrators, shared by all drafters of an engine; None for new ones.
        dtype: data type of the models to load, as in ``Target.load``.
        prefetch: as in ``DatastoreDrafter``.
        models: loaded drafters, for a drafter that merges them.
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
        """The target. Raises InvalidArgument if ``target`` is None."""
        if self.target is None:
            raise InvalidArgument(
                "target is None; load one with suffolk.Target.load (on the command line: --model MODEL)"
            )
        return self.target

    def calibrate(self, drafter: CalibratedDrafter, label: str) -> None:
        """Give ``drafter`` its calibrator in ``calibration``, stored under its name and ``label``.

        Has no effect if ``calibration`` is None.
        """
        if self.calibration is not None:
            drafter.calibrate(self.calibration.neural(f"{drafter.name} {label}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterEntry:
    """The registry's entry for one drafter.

    Attributes:
        name: its name in ``--drafter``, metrics and reports.
        source_id: the bit 0..31 of ``DraftTree.sources`` that marks its nodes; None for a drafter that only merges others.
        loader: "module:function". The function takes a ``LoadContext`` and ``Options`` and returns the drafter. Imported on use.
        options: its options on the command line and in ``DrafterConfig``.
        needs_option: whether the drafter is loaded only if one of its options is given.
        needs_target: whether the loader needs ``LoadContext.target``.
        is_neural: whether it runs a model. A hybrid then decides in each step whether to run it.
        reads_states: whether it reads the target's hidden states. Compiled passes do not return them.
        reads_datastores: whether it drafts from datastores.
        takes_head: decides whether the config.json of another program describes a head for this drafter. None if the drafter has
            no heads. A config.json of Suffolk names its drafter (``"suffolk": name``).
        take: "module:function". The function takes this entry and all options, and returns this drafter's options, or None
            if there are none. It rejects bad values before anything is loaded. If it is empty, ``given`` is used.
        package: name and version of a plugin's package; empty for a built-in drafter.
    """

    name: str
    source_id: int | None
    loader: str
    options: tuple[DrafterOption, ...] = ()
    needs_option: bool = False
    needs_target: bool = False
    is_neural: bool = False
    reads_states: bool = False
    reads_datastores: bool = False
    takes_head: Callable[[Mapping[str, Any]], bool] | None = None
    take: str = ""
    package: str = ""

    @property
    def source(self) -> int:
        """The bit mask of ``source_id``; 0 if it is None."""
        return 0 if self.source_id is None else 1 << self.source_id

    @property
    def usage(self) -> str:
        """Its options on the command line, as in ``--exit-layers N or --head FOLDER``."""
        return " or ".join(option.usage for option in self.options)

    def taken(self, options: Options) -> Options | None:
        """The part of ``options`` for this drafter; None if there is none. Raises the errors of ``take``."""
        if self.take:
            return resolve(self.take)(self, options)  # type: ignore[no-any-return]
        return self.given(options)

    def given(self, options: Options) -> Options | None:
        """The part of ``options`` with names from ``self.options``; None if there is none."""
        names = {option.name for option in self.options}
        return {name: value for name, value in options.items() if name in names} or None


def resolve(path: str) -> Any:
    """The object at "module:name". Raises the errors of ``import_module`` and ``getattr``."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
