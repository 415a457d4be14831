"""Parquet and Arrow files with odd types, without columns, encrypted, and with other names."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from pyarrow import feather, parquet

from suffolk.datastore.errors import InvalidArgument, Unsupported
from tests.build_index.test_arrow_files import TEXTS, texts, write_stream


def test_categories_of_polars_are_texts(tmp_path: Path) -> None:
    """Their dictionaries hold ``string_view``."""
    column = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0, 1, None, 1], "uint8"), pyarrow.array(TEXTS[:2], "string_view")
    )
    feather.write_feather(pyarrow.table({"text": column}), tmp_path / "a.arrow", compression="uncompressed")
    assert texts(tmp_path) == [TEXTS[0], TEXTS[1], TEXTS[1]]


@pytest.mark.parametrize("name", ["a.arrows", "a.ipc", "a.feather"])
def test_streams_have_several_endings(tmp_path: Path, name: str) -> None:
    write_stream(tmp_path / name, pyarrow.table({"text": TEXTS}))
    assert texts(tmp_path) == TEXTS


def test_a_file_without_columns_lacks_a_text(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"text": TEXTS}).select([]), tmp_path / "a.parquet")
    with pytest.raises(InvalidArgument, match="no column 'text' .* it has no columns"):
        texts(tmp_path / "a.parquet")


def test_an_encrypted_file_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PARE" + bytes(100) + b"PARE")
    with pytest.raises(InvalidArgument, match="encrypted Parquet file \\(decrypt it\\)"):
        texts(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Cannot decrypt ColumnMetadata. FileDecryption is not setup", "an encrypted Parquet file .*; decrypt it"),
        ("Function 'take' has no kernel", "pyarrow cannot read this Parquet file .*; write it with other types"),
    ],
)
def test_what_pyarrow_cannot_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, message: str
) -> None:
    parquet.write_table(pyarrow.table({"text": TEXTS}), tmp_path / "a.parquet")
    kind = OSError if "crypt" in reason else pyarrow.ArrowNotImplementedError

    def refuse(*_: object) -> None:
        raise kind(reason)

    monkeypatch.setattr(parquet, "ParquetFile", refuse)
    with pytest.raises(Unsupported, match=message):
        texts(tmp_path)


def test_times_beyond_the_calendar_are_refused(tmp_path: Path) -> None:
    when = pyarrow.array([10**18], "timestamp[us]")
    feather.write_feather(pyarrow.table({"text": TEXTS[:1], "when": when}), tmp_path / "a.arrow")
    assert texts(tmp_path) == TEXTS[:1]
    with pytest.raises(InvalidArgument, match="when or text holds a time that is not in the years 1 to 9999"):
        texts(tmp_path, metadata=("when",))
