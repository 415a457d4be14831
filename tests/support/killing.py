"""Commands that change a datastore, and checks that a kill at any time does no harm."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import NotFound
from suffolk.datastore.manifest import read_manifest
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from tests.support.building import make_texts, segment_bytes, tokenizer_json, write_jsonl, write_tokenizer
from tests.support.fork_server import Ending, ForkServer

CONTEXTS = [list(range(start, start + 3)) for start in range(0, 300, 20)] + [[token] for token in range(0, 300, 7)]


@dataclass(frozen=True)
class Generation:
    """Everything that a reader can see of a datastore."""

    number: int
    documents: list[Any]
    answers: list[Any]
    segments: dict[str, bytes]
    tokenizer: str | None


@dataclass(frozen=True)
class Change:
    """A command on a datastore, with the states before and after it.

    Attributes:
        base: the datastore before the command; None if there is none.
        arguments: the command line with ``STORE`` for the datastore.
        seconds: duration without interruption.
        points: number of times that it reaches each fail point.
    """

    name: str
    base: Path | None
    arguments: tuple[str, ...]
    before: Generation | None
    after: Generation
    seconds: float
    points: dict[str, int]

    def command(self, store: Path) -> list[str]:
        return [argument.replace("STORE", str(store)) for argument in self.arguments]

    def prepare(self, store: Path) -> None:
        if self.base is not None:
            shutil.copytree(self.base, store)


def make_changes(folder: Path, server: ForkServer) -> list[Change]:
    """Return every command that publishes, on several segments. Their initial datastores are in ``folder``."""
    tokenizer, other = write_tokenizer(folder), _other_tokenizer(folder)
    shards = [str(write_jsonl(folder / f"shard-{number}.jsonl", make_texts(6, seed=number))) for number in range(6)]
    np.save(folder / "ids.npy", np.arange(400, dtype=np.uint16) % 90)
    small = ("--segment-tokens", "1", "--threads", "1")
    build = ("build", "--output", "STORE", *small)
    fresh = make_change(server, folder, "fresh", None, (*build, "--tokenizer", tokenizer, *shards[:3]))
    base = folder / "fresh"
    return [
        fresh,
        make_change(server, folder, "append", base, (*build, "--append", *shards[3:])),
        make_change(server, folder, "replace", base, (*build, "--replace", "--tokenizer", other, *shards[2:5])),
        make_change(
            server, folder, "replace-ids", base, (*build, "--replace", "--vocab-size", "99", str(folder / "ids.npy"))
        ),
        make_change(server, folder, "delete", base, ("delete", "STORE", "--where", "source~*shard-1*")),
        make_change(server, folder, "compact", folder / "delete", ("compact", "STORE")),
    ]


def make_change(server: ForkServer, folder: Path, name: str, base: Path | None, arguments: tuple[str, ...]) -> Change:
    """Run the command once without interruption in ``folder/NAME``, to record the expected result."""
    store = folder / name
    if base is not None:
        shutil.copytree(base, store)
    ending = server.run([argument.replace("STORE", str(store)) for argument in arguments], failpoint="none")
    assert ending.code == 0, ending.errors
    before = None if base is None else look(base)
    return Change(name, base, arguments, before, look(store), ending.seconds, ending.reached)


def look(store: Path) -> Generation:
    """Open a datastore, verify it, and record all answers."""
    manifest = read_manifest(store)
    with open_datastore(store) as datastore:
        datastore.verify("full")
        trees = datastore.draft_batch([[id % manifest.vocab_size for id in ids] for ids in CONTEXTS])
        path = datastore.tokenizer_path()
        mark = None if path is None else fingerprint(load_tokenizer(path))
        assert mark == manifest.tokenizer, f"{path} is not the tokenizer of generation {manifest.generation}"
        return Generation(
            manifest.generation,
            [(found.source, dict(found.metadata), found.tokens.tolist()) for found in datastore.documents()],
            [(tree.match_length, tree.match_count, tree.tokens.tolist(), tree.counts.tolist()) for tree in trees],
            segment_bytes(store),
            mark,
        )


def prove(change: Change, store: Path, ending: Ending, server: ForkServer) -> str:
    """Assert that ``store`` has its old or new generation after a kill of ``change``, and that the command can continue.

    Returns the phase of the kill: ``nothing``, ``working``, ``published``, ``tidied`` or ``done``.
    """
    assert ending.code in (0, -9), ending.errors
    seen = _generation(store)
    assert seen in (change.before, change.after), "the datastore has neither the old generation nor the new one"
    _assert_no_leftovers(change, store)
    journal = (store / "build" / "journal.jsonl").exists()
    phase = "working" if journal else "nothing"
    if seen == change.after:
        phase = "done" if ending.code == 0 else "published" if journal else "tidied"
    if phase in ("nothing", "working", "published"):
        again = server.run(change.command(store))
        assert again.code == 0, again.errors
    elif change.base is None:  # this command fails, but takes the lock and cleans up first
        again = server.run(change.command(store))
        assert "holds a datastore already" in again.errors
    else:
        return phase
    assert _generation(store) == change.after, "the continued command gave another result"
    clean = {"MANIFEST", "LOCK", "segments", *(path.name for path in store.glob("tokenizer*.json"))}
    assert {path.name for path in store.iterdir()} == clean
    assert {path.name for path in (store / "segments").iterdir()} == set(change.after.segments)
    return phase


def _generation(store: Path) -> Generation | None:
    try:
        return look(store)
    except NotFound:
        return None


def _assert_no_leftovers(change: Change, store: Path) -> None:
    """Assert that the folder holds only the generation's files, the work folder, and files that readers ignore."""
    if not store.exists():
        return
    names = {path.name for path in store.iterdir() if path.suffix != ".tmp" and not path.match("tokenizer*.json")}
    assert names <= {"MANIFEST", "LOCK", "segments", "build"}, names
    known = set(change.after.segments) | set(change.before.segments if change.before else ())
    if (store / "segments").exists():
        assert {path.name for path in (store / "segments").iterdir()} <= known


def _other_tokenizer(folder: Path) -> str:
    """A tokenizer that differs from the first: two of its ids are swapped."""
    place = folder / "other"
    place.mkdir()
    data = json.loads(tokenizer_json())
    vocabulary = data["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (place / "tokenizer.json").write_text(json.dumps(data))
    return str(place)
