"""Options of drafting, made from the registry of drafters, and the choice of the drafters that a command runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from suffolk.cli.options.config_file import read_toml
from suffolk.cli.options.setting import Configurable, Options, Setting
from suffolk.cli.options.values import at_home
from suffolk.datastore.checks import ABOVE_0
from suffolk.datastore.context_query import DEFAULT_MAX_DEPTH, DEFAULT_MAX_MATCH, DEFAULT_MIN_MATCH
from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.datastore.retriever import MAX_NODES
from suffolk.datastore.settings import Within, rare
from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig
from suffolk.serving.decoding.drafters.drafter_entry import DrafterEntry, DrafterOption
from suffolk.serving.decoding.drafters.registry import BUILT_IN, NONE, find, known, names
from suffolk.serving.decoding.drafters.retrieval.limits import Length, Limits
from suffolk.serving.decoding.engine.costs.cost_store import read_costs

Nodes = Annotated[int, Within(1, MAX_NODES)]
DEFAULT_NODES = 64
HYBRID = "hybrid"


@dataclass(frozen=True, kw_only=True)
class DrafterOptions(Options):
    """Sources of drafts: the options of the registry's drafters and of the plugins named by --drafter.

    Attributes:
        drafter_values: values by the names of these options.
        WITHOUT: drafters whose options the command does not take.
    """

    GROUP = "drafting"
    WITHOUT: ClassVar[tuple[str, ...]] = ()
    drafter_values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def further(cls, settings: Mapping[str, Setting], words: Sequence[str]) -> dict[str, Setting]:
        """The command's own ``settings`` and the settings of drafters.

        Raises:
            Unsupported: an option of a plugin that ``words`` name is also an option of the command. Others as ``find``.
        """
        found = {
            each.name: _setting(each, DrafterOptions.GROUP, issubclass(cls, Configurable))
            for entry in BUILT_IN.values()
            if entry.name not in cls.WITHOUT
            for each in entry.options
        }
        for entry in _plugins(_named(words)):
            for each in entry.options:
                if each.name in settings:
                    raise Unsupported(
                        f"drafter {entry.name} of package {entry.package}: option {each.flag} is one of the command's own; "
                        f"the package must name it --{entry.name}-..."
                    )
                found[each.name] = _setting(each, f"drafter {entry.name} ({entry.package})", False)
        return found

    @property
    def datastore(self) -> tuple[str, ...]:
        """Folders and URLs of datastores."""
        return tuple(self.drafter_values.get("datastore", ()))

    def named(self) -> tuple[str, ...]:
        """The drafters named by --drafter."""
        name = getattr(self, "drafter", None) or ()
        return (name,) if isinstance(name, str) else tuple(name)

    def drafter_config(self) -> DrafterConfig:
        """The drafters to load: drafters with given options, and plugins. Raises the errors of ``DrafterConfig`` and ``find``."""
        plugins = [entry.name for entry in _plugins(self.named())]
        entries = [entry for entry in known() if entry.needs_option or entry.name in plugins]
        options = {each.name for entry in entries for each in entry.options}
        given = {name: value for name, value in self.drafter_values.items() if name in options}
        return DrafterConfig(*plugins, dtype=getattr(self, "dtype", "auto"), **given)

    def chosen(self, choices: Sequence[str]) -> list[str]:
        """The named drafters, each once. If none is named: all drafters of ``choices`` that have a source to draft from.

        Raises:
            InvalidArgument: a named drafter has no source. Others as ``DrafterConfig.parts``.
        """
        loaded = list(self.drafter_config().parts())
        able = {
            NONE,
            *loaded,
            *(entry.name for entry in BUILT_IN.values() if not entry.options and entry.name != HYBRID),
        }
        able |= {"datastore"} if self.datastore else set()
        able |= {HYBRID} if self.datastore or loaded else set()
        for name in self.named():
            if name not in able:
                needed = find("datastore" if name == HYBRID else name).usage
                raise InvalidArgument(f"--drafter {name} needs something to draft from; add {needed}")
        return list(dict.fromkeys(self.named() or [name for name in choices if name in able]))


@dataclass(frozen=True, kw_only=True)
class RetrievalOptions(Options):
    """Limits of retrieval."""

    GROUP = "drafting"
    deadline_ms: Annotated[float, Within(ABOVE_0, 3_600_000)] | None = rare(
        None,
        "milliseconds that a remote draft may take (default: deadline_ms of the URL; else 20, or a longer decoding step)",
        metavar="MS",
    )
    max_match: Length = rare(DEFAULT_MAX_MATCH, "longest match, in tokens")
    min_match: Length = rare(DEFAULT_MIN_MATCH, "shortest match, in tokens")
    max_depth: Length = rare(
        DEFAULT_MAX_DEPTH,
        "depth of drafts, in tokens; drafts from the request's own text may be twice as deep",
    )

    def limits(self) -> Limits:
        """The limits. Raises InvalidArgument if ``min_match`` is above ``max_match``."""
        return Limits(self.max_match, self.min_match, self.max_depth)


@dataclass(frozen=True, kw_only=True)
class PlannerOptions(Options):
    """How large draft trees are."""

    GROUP = "drafting"
    max_nodes: Nodes = rare(
        DEFAULT_NODES, "the most nodes of a draft tree; measured costs decide how many of them are used"
    )
    costs: Path | None = rare(
        None, "file of 'suffolk profile' (default: the costs stored for this model, or a quick measurement)"
    )


def require_costs(file: Path | None) -> None:
    """Check that ``file``, if given, holds costs of any model. Raises the errors of ``read_costs``."""
    if file is not None:
        read_costs(file)


def _plugins(wanted: Iterable[str]) -> list[DrafterEntry]:
    """The entries of the plugins among ``wanted``. Raises the errors of ``find``."""
    installed = set(names()) - BUILT_IN.keys()
    return [find(name) for name in dict.fromkeys(wanted) if name in installed]


def _named(words: Sequence[str]) -> Iterator[str]:
    """The drafters that ``words`` name, also in the file of --config."""
    for place, word in enumerate(words):
        flag, equals, value = word.partition("=")
        value = value if equals else words[place + 1] if place + 1 < len(words) else ""
        if flag == "--drafter":
            yield value
        elif flag == "--set" and value.startswith("drafter="):
            yield value.removeprefix("drafter=")
        elif flag == "--config" and value:
            document = read_toml(Path(at_home(value)))
            for table in (document, *(each for each in document.values() if isinstance(each, dict))):
                found = table.get("drafter", [])
                yield from (each for each in (found if isinstance(found, list) else [found]) if isinstance(each, str))


def _setting(of: DrafterOption, group: str, has_file: bool) -> Setting:
    default = () if of.repeated else False if of.kind is bool else None
    return Setting(
        of.name, of.kind, default, of.help, group, of.flag, of.metavar, rare=of.rare and has_file, many=of.repeated
    )
