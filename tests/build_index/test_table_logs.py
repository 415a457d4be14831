"""Folders that hold more than valid rows: tables with a log, and datastores."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from suffolk.build_index.inputs import find_inputs
from suffolk.datastore.errors import InvalidArgument
from tests.build_index.test_arrow_files import texts
from tests.support.build_blocks import options
from tests.support.stores import make_store

LOGS = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Hudi": ".hoodie/hoodie.properties",
    "Iceberg": "metadata/v1.metadata.json",
}


@pytest.mark.parametrize("name", LOGS)
def test_removed_rows_of_tables_do_not_come_back(tmp_path: Path, name: str) -> None:
    table, log = tmp_path / "table", tmp_path / "table" / LOGS[name]
    log.parent.mkdir(parents=True)
    log.write_text('{"add": {}}\n')
    parquet.write_table(pyarrow.table({"text": ["removed"]}), table / "a.parquet")
    (tmp_path / "b.txt").write_text("kept")
    urls = () if name == "Hudi" else (f"file://{tmp_path}",)  # hidden files at a URL are not listed
    for corpus in (tmp_path, *urls):
        assert texts(corpus) == ["kept"]  # type: ignore[arg-type]
        assert [each.reason.partition(",")[0] for each in find_inputs(options(corpus)).unread] == [f"{name} table"]
    with pytest.raises(InvalidArgument, match=f"nothing to read .1 {name} table, whose files also hold removed rows"):
        texts(table)
    assert texts(table / "*.parquet") == ["removed"]


def test_a_folder_named_metadata_makes_no_table(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "a.json").write_text("{}")
    assert texts(tmp_path) == ["{}"]


def test_datastores_are_no_corpora(tmp_path: Path) -> None:
    make_store(tmp_path / "store", [[[1, 2, 3]]], vocab_size=10)
    (tmp_path / "pushed" / "segments").mkdir(parents=True)
    (tmp_path / "pushed" / "segments" / "a.seg").write_text("a segment")
    (tmp_path / "pushed" / "generations").mkdir()
    (tmp_path / "pushed" / "generations" / "000001.json").write_text("{}")
    (tmp_path / "a.txt").write_text("a text")
    for corpus in (tmp_path, f"file://{tmp_path}"):
        assert texts(corpus) == ["a text"]  # type: ignore[arg-type]
        skipped = [(Path(each.place).name, each.reason) for each in find_inputs(options(corpus)).unread]
        assert sorted(skipped) == [("pushed", "datastore"), ("store", "datastore")]
