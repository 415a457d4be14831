"""Shards of a datastore: what they hold, what they share with it, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from suffolk.build_index.delete import delete
from suffolk.build_index.split import split
from suffolk.cli.main import main
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.datastore.merged import MergedDatastore
from tests.support.stores import make_store

SEGMENTS = [[[1, 2, 3] * 9], [[1, 2, 4] * 3, [5]], [[1, 2, 3] * 4], [[7] * 2]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    make_store(tmp_path / "store", SEGMENTS, vocab_size=9).close()
    return tmp_path / "store"


def test_shards_hold_every_segment_once(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["split", str(store), str(tmp_path / "shards"), "--shards", "2", "--json"]) == 0
    shards = json.loads(capsys.readouterr().out)["shards"]
    assert [shard["path"] for shard in shards] == [str(tmp_path / f"shards/shard-{number}") for number in (0, 1)]
    assert sorted(shard["tokens"] for shard in shards) == [24, 27]
    assert sum(shard["documents"] for shard in shards) == 5
    names = [path.name for shard in shards for path in Path(shard["path"], "segments").iterdir()]
    assert sorted(names) == sorted(path.name for path in (store / "segments").iterdir())
    assert all(os.stat(store / "segments" / name).st_nlink == 2 for name in names)
    with open_datastore(store) as whole:
        parts = {str(number): open_datastore(shard["path"]) for number, shard in enumerate(shards)}
        assert MergedDatastore(parts).lookup([1, 2]) == whole.lookup([1, 2])
        assert {part.info()["generation"] for part in parts.values()} == {1}


def test_one_line_a_shard(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["split", str(store), str(tmp_path / "shards"), "--shards", "1"]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}/shards/shard-0: 4 segments, 5 documents, 51 tokens, ")


def test_what_cannot_be_split(store: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        split(tmp_path / "none", tmp_path / "shards", 2)
    with pytest.raises(InvalidArgument, match="store exists; name a new folder"):
        split(store, store, 2)
    with pytest.raises(InvalidArgument, match="is inside the datastore .*; name a folder outside of it"):
        split(store, store / "shards", 2)
    with pytest.raises(InvalidArgument, match="shards is 0; it must be between 1 and 64"):
        split(store, tmp_path / "shards", 0)
    with pytest.raises(
        InvalidArgument, match="has 4 segments for 5 shards; lower --shards, or build it with a smaller"
    ):
        split(store, tmp_path / "shards", 5)
    delete(store, where=["source=segment 0 document 0"])
    with pytest.raises(InvalidArgument, match="has deleted documents; run 'suffolk compact"):
        split(store, tmp_path / "shards", 2)
    assert not (tmp_path / "shards").exists()
    assert not list(tmp_path.glob(".shards*"))
