"""The folder ``STORE/live/`` of a live store. It holds the log, a lock, and the store's identity, which never
changes."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import Field, InvalidArgument, NotFound, Unsupported, damaged
from suffolk.datastore.files import fsync_directory, write_atomically
from suffolk.datastore.manifest import (
    LOCK_NAME,
    MANIFEST_NAME,
    TOKENIZER_PATTERN,
    Manifest,
    read_manifest,
    tokenizer_name,
    writer_lock,
)
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer, vocab_size

LIVE_NAME = "live"
IDENTITY_NAME = "identity.json"
LOG_NAME = "log"
REPLICA_NAME = "replica.json"
"""The file with the id of a copy, if the store has copies on other servers (serving/store/replication)."""
FORMAT = 1
_KEY_BYTES = 16
_TOKENIZERS = TOKENIZER_PATTERN.partition("*")[0]


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """What never changes in a live store.

    Attributes:
        vocab_size, order_depth, tokenizer: as in ``suffolk.datastore.manifest.Manifest``.
        group_secret: the key, in hex, that hashes names of groups.
    """

    vocab_size: int
    order_depth: int
    tokenizer: str | None
    group_secret: str

    def group_key(self, group: str) -> int:
        """The 64-bit key of a group, never 0. Without the secret, no caller can find two names with the same key."""
        secret = bytes.fromhex(self.group_secret)
        digest = blake2b(group.encode("utf-8", "replace"), digest_size=8, key=secret).digest()
        return int.from_bytes(digest, "little") or 1

    def require(self, manifest: Manifest, store: Path) -> None:
        """Refuse a generation with another kind of tokens.

        Raises:
            Unsupported: vocabulary, tokenizer or order depth differ.
        """
        for name in ("vocab_size", "tokenizer", "order_depth"):
            ours, theirs = getattr(self, name), getattr(manifest, name)
            if ours != theirs:
                raise Unsupported(
                    f"{store}: generation {manifest.generation} has {name} {theirs}, and its live documents have {ours}; "
                    f"publish one that agrees, or remove {store / LIVE_NAME} to give the live documents up"
                )


def log_folder(store: Path) -> Path:
    """The folder of the log files."""
    return store / LIVE_NAME / LOG_NAME


def has_log(store: Path) -> bool:
    """Whether documents were appended to the datastore, so that some may not be published."""
    return log_folder(store).is_dir() and any(log_folder(store).iterdir())


def append_lock(store: Path) -> AbstractContextManager[None]:
    """Context manager that lets one process at a time append. Raises Unavailable, PermissionDenied: see ``writer_lock``."""
    return writer_lock(
        store / LIVE_NAME,
        f"another process has {store} open for appending; append and delete through its server, such as "
        f"grpc://HOST:PORT/{store.name}, or stop it",
    )


def is_live(store: Path) -> bool:
    """Whether documents may have been appended to the datastore, so that some may not be published."""
    return (store / LIVE_NAME).is_dir()


def refuse_replica(store: Path) -> None:
    """Raises InvalidArgument: the store is a copy of a store on other servers. With changes of its own it would differ
    from the other copies."""
    if (path := store / LIVE_NAME / REPLICA_NAME).exists():
        raise InvalidArgument(
            f"{store} is a copy of a store on other servers; serve it with --register, or remove {path} to make it independent"
        )


def is_free(store: Path) -> bool:
    """Whether a store can be made at ``store``: nothing, an empty folder, or the rest of an interrupted
    ``create_identity`` is there."""
    if not store.is_dir():
        return not store.exists()
    made = {LIVE_NAME, LOCK_NAME}
    others = [path.name for path in store.iterdir() if path.name not in made]
    live = {path.name for path in (store / LIVE_NAME).glob("*")}
    return (
        all(name.startswith(_TOKENIZERS) for name in others)
        and live <= {LOG_NAME, f"{IDENTITY_NAME}.tmp"}
        and not has_log(store)
    )


def create_identity(store: Path, tokenizer: str | Path | None, size: int | None, order_depth: int) -> None:
    """Make the folder of a store without documents, and its identity. The identity is written last. Until then, the
    folder is free (``is_free``). The larger of ``size`` and the tokenizer's vocabulary counts.

    Raises:
        InvalidArgument: the folder is not free, neither tokenizer nor size is given, or a number is out of its range.
        NotFound, Corruption: there is no tokenizer of that name, or it cannot be read.
        Unavailable: another process makes the store.
    """
    _require_free(store)
    loaded = None if tokenizer is None else load_tokenizer(tokenizer)
    size = size if loaded is None else max(size or 0, vocab_size(loaded))
    if size is None:
        raise InvalidArgument(
            "neither a tokenizer nor ", Field("vocab_size"), " is given; give the tokenizer of the model"
        )
    for name, value, most in (("vocab_size", size, (1 << 31) - 1), ("order_depth", order_depth, 1024)):
        check_range(name, value, 1, most)
    mark = None if loaded is None else fingerprint(loaded)
    store.mkdir(parents=True, exist_ok=True)
    with writer_lock(store):
        _require_free(store)  # another process may have made it in the meantime
        (store / LIVE_NAME).mkdir(exist_ok=True)
        if loaded is not None and mark is not None:
            write_atomically(store / tokenizer_name(mark), loaded.to_str().encode())
        _write(store, StoreIdentity(size, order_depth, mark, secrets.token_hex(_KEY_BYTES)))


def open_identity(store: Path) -> StoreIdentity:
    """The identity of the store. It is made if the datastore has no live documents yet.

    Raises:
        NotFound: the folder holds neither a datastore nor a live store.
        Corruption, Unsupported: as ``read_identity``.
    """
    if not has_log(store) and not _path(store).exists():
        manifest = read_manifest(store)
        (store / LIVE_NAME).mkdir(exist_ok=True)
        secret = secrets.token_hex(_KEY_BYTES)
        _write(store, StoreIdentity(manifest.vocab_size, manifest.order_depth, manifest.tokenizer, secret))
    return read_identity(store)


def stored_tokenizer(store: Path) -> str | None:
    """The fingerprint of the tokenizer of the datastore or live store in a folder; None if it has none.

    Nothing is written. Raises the errors of ``open_identity``.
    """
    is_live = has_log(store) or _path(store).exists()
    return read_identity(store).tokenizer if is_live else read_manifest(store).tokenizer


def read_identity(store: Path) -> StoreIdentity:
    """The identity of a store that has a log.

    Raises:
        Corruption: the file is missing or damaged.
        Unsupported: a newer version wrote it.
    """
    path = _path(store)
    if not path.exists():
        raise damaged(path, "is missing beside a log: without it no group is found")
    try:
        data = json.loads(path.read_bytes())
        if data.pop("format") != FORMAT:
            raise Unsupported(f"{path}: this program reads format {FORMAT}: use a newer Suffolk")
        return StoreIdentity(**data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(path, f"is damaged: {error}") from error


def adopt_identity(store: Path, ours: StoreIdentity, theirs: StoreIdentity, empty: bool) -> StoreIdentity:
    """Take over the identity of another store, to become its copy. Returns it.

    Args:
        empty: whether this store has no documents. Only then may the secret that hashes names of groups change.

    Raises:
        Unsupported: the stores hold other tokens, or both hold documents of their own.
    """
    for name in ("vocab_size", "tokenizer", "order_depth"):
        if (here := getattr(ours, name)) != (there := getattr(theirs, name)):
            raise Unsupported(
                f"{store} has {name} {here}, and the store to copy has {there}; make both with the same tokenizer"
            )
    if ours != theirs:
        if not empty:
            raise Unsupported(
                f"{store} holds documents of its own, and is no copy; name another folder, or remove this one to give them up"
            )
        _write(store, theirs)
    return theirs


def published(store: Path) -> Manifest | None:
    """The manifest of the published generation; None if a live store has published none.

    Raises:
        Corruption, Unsupported: as ``read_manifest``.
    """
    try:
        return read_manifest(store)
    except NotFound:
        return read_manifest(store) if (store / MANIFEST_NAME).exists() else None  # a process may publish it just now


def _require_free(store: Path) -> None:
    if not is_free(store):
        raise InvalidArgument(f"{store} exists; open it, or name a new folder")


def _path(store: Path) -> Path:
    return store / LIVE_NAME / IDENTITY_NAME


def _write(store: Path, identity: StoreIdentity) -> None:
    log_folder(store).mkdir(exist_ok=True)
    content = json.dumps({"format": FORMAT, **asdict(identity)}, indent=1).encode()
    write_atomically(_path(store), content)
    os.chmod(_path(store), 0o600)
    for folder in (store, store.absolute().parent):
        fsync_directory(folder)
