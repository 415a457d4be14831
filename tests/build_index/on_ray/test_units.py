"""Units of a corpus, read apart from each other, have the blocks of the whole corpus."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from suffolk.build_index.block import START, Position
from suffolk.build_index.inputs import Inputs, find_inputs
from suffolk.build_index.on_ray import units
from suffolk.build_index.on_ray.tasks import read_unit
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.reader import read_blocks
from tests.support.building import make_texts, write_jsonl

Blocks = list[tuple[Any, Position, int]]


def corpus(folder: Path) -> tuple[str, ...]:
    """Small and large text files, an empty, a binary and a compressed one."""
    texts = make_texts(400, words=30)
    for number in range(9):
        (folder / f"a{number}.txt").write_text("".join(texts[20 * number : 20 * number + 20]) * 60)
    (folder / "b-empty.txt").write_text("")
    (folder / "c-large.txt").write_text("".join(texts) * 40)
    (folder / "d-binary").write_bytes(b"\0\1")
    (folder / "e-last.txt").write_text("end")
    (folder / "f.jsonl.gz").write_bytes(gzip.compress(write_jsonl(folder / "g.jsonl", texts * 12).read_bytes()))
    (folder / "h-empty.txt").write_text("")
    return (str(folder),)


def read_units(inputs: Inputs, options: BuildOptions, start: Position) -> Blocks:
    """All blocks, read by units."""
    found: Blocks = []
    for unit in units.cut_units(inputs, start):
        items = read_unit(unit.files, options, "u16", unit.start)
        for place in items:
            at = unit.in_inputs(place)
            if place.has_block:
                found.append((next(items), at.next, at.bytes_read))
    return found


@pytest.mark.parametrize("unit_bytes", [1, 1 << 21, 1 << 30])
def test_units_have_the_blocks_of_the_corpus_from_any_place_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit_bytes: int
) -> None:
    monkeypatch.setattr(units, "UNIT_BYTES", unit_bytes)
    options = BuildOptions(corpus(tmp_path), tmp_path / "store", tokenizer="t")
    inputs = find_inputs(options)
    blocks = list(read_blocks(inputs, options, "u16"))
    assert len(blocks) > 4
    assert inputs.skipped == {"empty": 2, "binary": 1}
    for done in range(0, len(blocks), 3):
        start = blocks[done - 1].next if done else START
        expected = [(each.payload, each.next, each.bytes_read) for each in blocks[done:]]
        assert read_units(inputs, options, start) == expected


def test_there_are_several_units_of_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "UNIT_BYTES", 1)
    inputs = find_inputs(BuildOptions(corpus(tmp_path), tmp_path / "store", tokenizer="t"))
    names = [" ".join(Path(file.path).stem for file in unit.files) for unit in units.cut_units(inputs, START)]
    small = " ".join(f"a{number}" for number in range(9))
    assert names == [small, "c-large", "e-last", "f.jsonl", "g"]
