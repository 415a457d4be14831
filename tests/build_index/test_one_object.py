"""JSON files of one object: records, tables in the forms of pandas, descriptions of data sets, and texts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from suffolk.build_index.form import DESCRIPTION, MORE_BYTES
from suffolk.build_index.inputs import find_inputs
from suffolk.build_index.one_object import closed
from suffolk.datastore.errors import InvalidArgument
from tests.build_index.test_input_forms import texts
from tests.support.build_blocks import options

LONG = "A text of forty characters or more, which is no name."
ROWS = [{"id": number, "text": f'text {number} "é"\n'} for number in range(3)]
LONG_ROWS = [{"id": number, "text": LONG} for number in range(3)]
TABLES: dict[str, Any] = {
    "columns": {name: {str(at): row[name] for at, row in enumerate(ROWS)} for name in ("id", "text")},
    "index": {str(at): row for at, row in enumerate(ROWS)},
    "split": {"columns": ["id", "text"], "index": [0, 1, 2], "data": [[row["id"], row["text"]] for row in ROWS]},
    "named": {f"doc-{row['id']}": row for row in LONG_ROWS},
    "lists": {"id": [0, 1, 2], "text": [LONG] * 3},
    "nested": {"version": 1, "docs": {f"doc-{row['id']}": row for row in LONG_ROWS}},
}
"""The forms of ``pandas.DataFrame.to_json``, objects by name, and ``datasets.Dataset.to_dict``."""


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", TABLES)
def test_tables_are_left_out_with_a_command_that_writes_records(tmp_path: Path, name: str, indent: int | None) -> None:
    (tmp_path / "a.json").write_text(json.dumps(TABLES[name], indent=indent))
    with pytest.raises(InvalidArgument, match="rows or columns") as raised:
        texts(tmp_path / "a.json")
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    found = re.search(r"jq -c '([^']*)'", str(raised.value))
    assert found is not None
    lines = subprocess.run(["jq", "-c", found[1], tmp_path / "a.json"], check=True, capture_output=True).stdout
    assert [json.loads(line) for line in lines.splitlines()] == (
        ROWS if name in ("columns", "index", "split") else LONG_ROWS
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"text": {"primary": "#000", "muted": "#888"}, "line": {"primary": "#fff"}},
        {"save": {"text": "Save"}, "open": {"text": "Open"}},
        {"text": ["#000", "#888"], "line": ["#fff", "#ccc"]},
        {"columns": ["text"], "width": 3},
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_settings_stay_texts(tmp_path: Path, settings: Any, indent: int | None) -> None:
    (tmp_path / "a.json").write_text(json.dumps(settings, indent=indent))
    assert texts(tmp_path) == ([json.dumps(settings, indent=indent)], ["a.json"])


def test_a_record_may_take_several_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"id": 1, "text": LONG}, indent=2))
    (tmp_path / "b.jsonl").write_text(json.dumps({"id": 1, "text": LONG}, indent=2) + "\n")
    assert texts(tmp_path) == ([LONG, LONG], ["a.json:1", "b.jsonl:1"])
    (tmp_path / "a.json").write_text(json.dumps({"id": 1, "text": LONG}, indent=2) + "\nand more text\n")
    assert texts(tmp_path / "a.json")[1] == ["a.json"]


@pytest.mark.parametrize("name", ["columns", "named"])
def test_large_tables_are_known_by_their_start(tmp_path: Path, name: str) -> None:
    rows = {str(at): LONG * 20 for at in range(MORE_BYTES // (20 * len(LONG)) + 100)}
    table = {"text": rows} if name == "columns" else {at: {"text": text} for at, text in rows.items()}
    (tmp_path / "a.json").write_text(json.dumps(table))
    assert (tmp_path / "a.json").stat().st_size > MORE_BYTES
    with pytest.raises(InvalidArgument, match="rows or columns"):
        texts(tmp_path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, {"b": "}"}, {"c": 2', {"a": [1, {"b": "}"}, {}]}),
        ('{"a": "x\\"y", "b": "cut', {"a": 'x"y'}),
        ('{"a": 12', {}),
        ('"cut', None),
    ],
)
def test_what_is_whole_of_cut_json(text: str, value: Any) -> None:
    assert closed(text) == value


def test_descriptions_of_data_sets_are_no_texts(tmp_path: Path) -> None:
    """As ``datasets`` writes them with ``save_to_disk``."""
    (tmp_path / "train").mkdir()
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "9f", "_split": "train"}
    (tmp_path / "train" / "state.json").write_text(json.dumps(state, indent=2))
    (tmp_path / "train" / "dataset_info.json").write_text('{"citation": "", "features": {"text": {}}}')
    (tmp_path / "train" / "a.txt").write_text("a text")
    (tmp_path / "state.json").write_text('{"state": "on"}')
    (tmp_path / "train" / "index.json").write_text(
        '{"shards": [{"column_encodings": ["str"]}]}'
    )  # of MosaicML's shards
    (tmp_path / "train" / "_committed_123").write_text(
        '{"added":["part-0.snappy.parquet"],"removed":[]}'
    )  # of Databricks
    (tmp_path / "_committed_123").write_text("a text")
    found = find_inputs(options(tmp_path, strict=True))
    names = ("_committed_123", "state.json", "train/a.txt")
    assert [file.path for file in found.files] == [str(tmp_path / name) for name in names]
    assert found.skipped == {DESCRIPTION: 5}


@pytest.mark.parametrize("value", [3, 0.5, True, {"a": 1}, [1]])
def test_a_text_of_another_type_is_one_error(tmp_path: Path, value: Any) -> None:
    """Regression: a number ended the build with a traceback."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": value}) + "\n")
    with pytest.raises(InvalidArgument, match="'text'"):
        texts(tmp_path)
