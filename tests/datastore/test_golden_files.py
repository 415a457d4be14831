"""Datastores of earlier versions (tests/golden) can be read by this one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from suffolk.datastore.datastore import open_datastore
from tests.golden.make import FOLDER, WIDTHS, ask, build, unpack
from tests.support.forging import HEADER_BYTES, sections

WRITER = 120
"""Offset of the writer's name in the header, after the fields of the format."""


def segments(store: Path) -> dict[str, bytes]:
    """Segment files by name. The checksum in a name is left out: it covers the header."""
    return {re.sub(r"-[0-9a-f]{8}(?=\.)", "", path.name): path.read_bytes() for path in (store / "segments").iterdir()}


@pytest.mark.parametrize("width", WIDTHS)
def test_old_files_are_read(width: int, tmp_path: Path) -> None:
    with open_datastore(unpack(width, tmp_path)) as datastore:
        datastore.verify("full")
        assert ask(datastore) == json.loads((FOLDER / f"width-{width}.json").read_text())


@pytest.mark.parametrize("width", [2, 3])
def test_the_writer_still_writes_the_frozen_format(width: int, tmp_path: Path) -> None:
    """The same documents give the same bytes.

    A difference is a format change, which needs a new version and new golden files.

    The version of the writer in the header, and the checksums over it, may differ.
    """
    unpack(width, tmp_path / "golden")
    build(tmp_path / "now", width)
    golden, now = segments(tmp_path / "golden"), segments(tmp_path / "now")
    assert golden.keys() == now.keys()
    for name, old in golden.items():
        new = now[name]
        end = sections(old)[0].place
        assert len(new) == len(old)
        assert new[:WRITER] == old[:WRITER]
        assert new[HEADER_BYTES:end] == old[HEADER_BYTES:end]
