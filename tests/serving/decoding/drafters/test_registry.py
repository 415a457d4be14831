"""Every drafter has one entry, from which its names, options and marks follow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.drafter_entry import resolve
from suffolk.serving.decoding.drafters.registry import (
    BUILT_IN,
    find,
    names,
    neural_bits,
    source_bits,
    source_name,
)


def test_every_loader_exists_and_every_mark_is_its_own() -> None:
    for entry in BUILT_IN.values():
        assert callable(resolve(entry.loader))
        assert not entry.take or callable(resolve(entry.take))
    ids = [entry.source_id for entry in BUILT_IN.values() if entry.source_id is not None]
    assert sorted(ids) == list(range(10))


def test_source_ids_are_those_of_earlier_versions() -> None:
    known = {name: find(name).source for name in names() if find(name).source}
    assert known == {
        "datastore": 1, "prompt-lookup": 2, "draft-model": 4, "early-exit": 8, "redrafter": 16, "eagle": 32, "hierarchy": 64,
        "token-recycling": 128, "prediction": 256, "parallel-samples": 512,
    }  # fmt: skip


@pytest.mark.parametrize("bits", [0, 1, 3, 1 << 7, 1 << 31, (1 << 32) - 1])
def test_names_of_sources_and_bits_say_the_same(bits: int) -> None:
    assert source_bits(source_name(bits)) == bits


def test_sources_have_names() -> None:
    assert source_name(0) == ""
    assert source_name(3 | 1 << 30) == "datastore+prompt-lookup+source-30"
    with pytest.raises(InvalidArgument, match="source 'eagle.magic': 'magic' is unknown"):
        source_bits("eagle+magic")


def test_all_but_searching_drafters_are_networks() -> None:
    assert (~neural_bits() & 0xFFFFFFFF) == source_bits(
        "datastore+prompt-lookup+token-recycling+prediction+parallel-samples"
    )


def test_an_unknown_drafter_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="drafter is 'magic'; it must be one of none, datastore, prompt-lookup"):
        find("magic")


def test_the_registry_and_help_load_no_torch() -> None:
    code = (
        "import sys; from suffolk.cli.main import main\n"
        "try: main(['generate', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).returncode == 0
