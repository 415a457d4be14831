"""Records the URL that a datastore's folder was copied from, so that a pull replaces no content that only the folder
has."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.datastore.files import write_atomically
from suffolk.datastore.manifest import Manifest, encode_manifest

ORIGIN_NAME = "origin.json"


@dataclass(frozen=True, slots=True)
class CopyOrigin:
    """The URL of a copy.

    Attributes:
        url: the place in storage.
        manifests: digests of manifests whose content is at ``url``. The copy is unchanged if its manifest has one of
            these digests.
    """

    url: str
    manifests: tuple[str, ...]


def record_origin(store: Path, url: str, *manifests: Manifest) -> None:
    """Record that the content of ``manifests`` is at ``url``.

    Raises:
        ResourceExhausted, PermissionDenied: the folder cannot be written.
    """
    content = {"url": url, "manifests": list(map(_digest, manifests))}
    write_atomically(store / ORIGIN_NAME, json.dumps(content).encode())


def require_replaceable(store: Path, url: str, current: Manifest) -> None:
    """Refuse to replace the datastore in ``store`` unless ``url`` holds the same content. ``current``: the manifest in
    ``store``.

    Raises:
        InvalidArgument: it was not copied from ``url``, or changed afterwards.
    """
    origin = read_origin(store)
    if origin is None or origin.url != url:
        kept = "was not pulled" if origin is None else f"belongs to {origin.url}, and was not pulled"
        raise InvalidArgument(
            f"{store} {kept} from {url}; name a new folder, or give --replace to put the copy in its place"
        )
    if _digest(current) not in origin.manifests:
        raise InvalidArgument(
            f"{store} was changed after it was pulled from {url}; push it, name a new folder, or give --replace to give the "
            "changes up"
        )


def read_origin(store: Path) -> CopyOrigin | None:
    """What ``record_origin`` wrote last; None without a record.

    Raises:
        Corruption: the file is damaged.
    """
    path = store / ORIGIN_NAME
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_bytes())
        return CopyOrigin(str(data["url"]), tuple(map(str, data["manifests"])))
    except (ValueError, KeyError, TypeError) as error:
        raise Corruption(f"{path} is damaged ({error}); remove it, and pull with --replace") from error


def _digest(manifest: Manifest) -> str:
    return hashlib.sha256(encode_manifest(manifest)).hexdigest()
