"""Makes the golden datastores: ``python -m tests.golden.make``.

Each is made once, for a new format version, and all later versions read it. A golden file is a .tar.zst of a datastore
of one token width. It has two segments with metadata and a deletion; with 4-byte tokens it has one segment, because the
first-rank table of a segment takes 64 MiB. A .json file beside it holds the expected answers.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from tokenizers import Tokenizer, models

from suffolk.build_index.delete import delete
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.manifest import tokenizer_name
from suffolk.datastore.tokenizer import fingerprint
from tests.support.stores import make_store

FOLDER = Path(__file__).parent
WIDTHS = {2: 40, 3: (1 << 16) + 40, 4: (1 << 24) + 40}
"""Token width in bytes -> a vocabulary size with that width."""
TOKENIZER = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))


def main() -> None:
    for width in WIDTHS:
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "store"
            build(store, width)
            with open_datastore(store) as datastore:
                answers = json.dumps(ask(datastore), indent=0)
            (FOLDER / f"width-{width}.json").write_text(answers + "\n")
            (FOLDER / f"width-{width}.tar.zst").write_bytes(pack(store))


def build(store: Path, width: int) -> None:
    """Build the datastore with the current writer."""
    segments = [_documents(width, number) for number in range(1 if width == 4 else 2)]
    origins = [
        [
            (f"shard-{number}.jsonl#{index}", {"license": "mit", "stars": index} if index % 2 else {})
            for index in range(len(documents))
        ]
        for number, documents in enumerate(segments)
    ]
    mark = fingerprint(TOKENIZER)
    make_store(store, segments, vocab_size=WIDTHS[width], tokenizer=mark, origins=origins).close()
    (store / tokenizer_name(mark)).write_text(TOKENIZER.to_str())
    if width != 4:
        delete(store, ids=["shard-0.jsonl#3"])


def ask(datastore: Datastore) -> dict[str, Any]:
    """Return all facts and answers of a datastore."""
    top = datastore.manifest.vocab_size - 40
    contexts = [[top + token, top + (token * 3 + 1) % 40] for token in range(0, 40, 3)] + [
        [top + token] for token in range(40)
    ]
    return {
        "documents": [[each.source, dict(each.metadata), each.tokens.tolist()] for each in datastore.documents()],
        "lookups": [[match.length, match.count] for match in datastore.lookup_batch(contexts)],
        "drafts": [
            [tree.tokens.tolist(), tree.parents.tolist(), _counts(tree)]
            for tree in datastore.draft_batch(contexts, max_nodes=24)
        ],
        "segments": [[entry.name, entry.bytes, entry.checksum] for entry in datastore.manifest.files()],
    }


def pack(store: Path) -> bytes:
    """Pack a folder as .tar.zst. The same files give the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(store.rglob("*")):
            if path.is_file() and path.name != "LOCK":
                member = tarfile.TarInfo(str(path.relative_to(store)))
                member.size = path.stat().st_size
                with path.open("rb") as file:
                    archive.addfile(member, file)
    return zstandard.ZstdCompressor(level=12).compress(buffer.getvalue())


def unpack(width: int, folder: Path) -> Path:
    """Write the golden datastore of a token width to ``folder``."""
    with (
        zstandard.open(FOLDER / f"width-{width}.tar.zst", "rb") as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        archive.extractall(folder, filter="data")
    return folder


def _documents(width: int, segment: int) -> list[list[int]]:
    top = WIDTHS[width] - 40
    generator = np.random.default_rng((width, segment))
    ids = [(generator.integers(0, 40, int(size)) + top).tolist() for size in generator.integers(1, 60, 8)]
    return [*ids, [], [top + 7] * 30, [0, 1, WIDTHS[width] - 1]]


def _counts(tree: Any) -> list[int]:
    return [] if tree.counts is None else tree.counts.tolist()


if __name__ == "__main__":
    main()
