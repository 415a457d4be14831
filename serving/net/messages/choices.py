"""The datastores that a client names in its URL: NAME, or several names with weights, such as ``code:3,wiki``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote, urlsplit

from suffolk.datastore.context_query import Groups
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.limits import check_name
from suffolk.datastore.merged import require_weights
from suffolk.serving.net.messages.documents import pack_groups
from suffolk.serving.net.proto import draft_pb2
from suffolk.serving.net.url import is_url, short_name


@dataclass(frozen=True, slots=True)
class DatastoreChoice:
    """A datastore to search, its weight (how often each text counts in ``MergedDatastore``), and the contexts' groups
    in it."""

    name: str
    weight: int = 1
    group: Groups = None


def parse_choices(text: str) -> tuple[DatastoreChoice, ...]:
    """The choices in ``NAME`` or ``NAME:WEIGHT,NAME``; none if ``text`` is empty.

    Raises:
        InvalidArgument: a name is empty or named twice, or a weight is out of range.
    """
    return check_choices([_parse(part, text) for part in text.split(",")]) if text else ()


def check_choices(choices: Sequence[DatastoreChoice]) -> tuple[DatastoreChoice, ...]:
    """``choices`` with short names. Raises InvalidArgument: there are too many, a name is repeated, or a weight is out
    of range."""
    names = [short_name(choice.name) for choice in choices]
    for name in names:
        check_name(name)
        if len(names) > 1 and (not name or names.count(name) > 1):
            problem = f"{name!r} is named twice" if name else "a name is empty"
            raise InvalidArgument(f"datastores: {problem}; name each datastore once")
    if choices:
        require_weights([choice.weight for choice in choices], len(choices))
    return tuple(replace(choice, name=name) for name, choice in zip(names, choices, strict=True))


def pack_choices(
    choices: Sequence[DatastoreChoice], groups: Mapping[str, Groups] | None = None
) -> list[draft_pb2.DatastoreChoice]:
    """``groups``: the queries' groups, by the name of the datastore. Raises InvalidArgument for a name that is no choice."""
    given = {name: pack_groups(each) for name, each in (groups or {}).items()}
    names = [each.name for each in choices]
    if unknown := sorted(given.keys() - set(names)):
        raise InvalidArgument(
            Field("group"), f": {unknown[0]!r} is none of the datastores that are searched: {', '.join(names)}"
        )
    return [
        draft_pb2.DatastoreChoice(name=each.name, weight=each.weight, groups=given.get(each.name, ()))
        for each in choices
    ]


def unpack_choices(messages: Sequence[draft_pb2.DatastoreChoice]) -> list[DatastoreChoice]:
    return [
        DatastoreChoice(each.name, each.weight if each.HasField("weight") else 1, list(each.groups))
        for each in messages
    ]


def merge_urls(names: Sequence[str]) -> list[str]:
    """``names`` of folders and URLs, with the datastores of one server in one URL, in the order of their first mention.

    One call then searches all datastores of a server.
    """
    merged: dict[str, list[str]] = {}
    for name in names:
        place, store = _split(name) if is_url(name) else (name, "")
        merged.setdefault(place if store else name, []).extend([store] if store else [])
    return [place.replace("\0", quote(",".join(stores), safe=",:/")) for place, stores in merged.items()]


def _split(url: str) -> tuple[str, str]:
    """``url``, in which a zero byte replaces the names of datastores, and these names."""
    parts = urlsplit(url)
    if parts.scheme == "grpc+unix":
        return f"{url.partition('#')[0]}#\0", unquote(parts.fragment)
    return parts._replace(path="/\0").geturl(), unquote(parts.path.strip("/"))


def _parse(part: str, text: str) -> DatastoreChoice:
    name, colon, weight = part.partition(":")
    if colon and not (weight.isascii() and weight.isdigit()):
        raise InvalidArgument(f"datastores {text!r}: weight {weight!r} is not a whole number; write NAME:WEIGHT,NAME")
    return DatastoreChoice(name, int(weight) if colon else 1)
