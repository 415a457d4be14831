"""The table of docs/how-to/scale.md has the nodes that the commands above it print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from suffolk.capacity.plan import CapacityPlan
from suffolk.cli.capacity import Options, plan_of
from suffolk.cli.options.parser import make_parser
from suffolk.cli.options.reading import read_options
from suffolk.cli.options.setting import settings_of
from suffolk.datastore.errors import InvalidArgument

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "scale.md").read_text()
COMMANDS = {name: words for words, name in re.findall(r"^suffolk capacity (.+?) +# ([A-Z])$", PAGE, re.MULTILINE)}
ROWS = {row[0]: row.split(" | ") for row in re.findall(r"^\| ([A-Z] \|.*) \|$", PAGE, re.MULTILINE)}


def planned(words: str) -> CapacityPlan:
    settings = settings_of(Options)
    return plan_of(read_options(Options, make_parser("", "", "", settings), settings, "capacity", shlex.split(words)))


def test_each_command_has_a_row() -> None:
    assert COMMANDS.keys() == ROWS.keys()
    assert len(ROWS) > 4


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_table_is_what_the_commands_print(name: str) -> None:
    plan = planned(COMMANDS[name])
    shard = plan.shard
    spares = shard.need.spares
    nodes = f"{plan.nodes:,}: {shard.shards} × ({plan.replicas} + {spares})"
    latency = f"{1e3 * shard.latency(plan.replicas):.0f} ms"
    busy = f"{shard.utilisation(plan.replicas):.0%}".replace("%", " %")
    assert ROWS[name][2:] == [nodes, f"{shard.memory_bytes / 1e9:.0f} GB", busy, latency, plan.binding]


@pytest.mark.parametrize(("tokens", "met"), [("140G", True), ("170G", False)])
def test_the_largest_datastore_of_a_step_of_50_ms(tokens: str, met: bool) -> None:
    assert "| 20 | 470 G | 140 G | 84 G | 33 G |" in PAGE
    words = f"--tokens {tokens} --workers 1 --steps-per-second 20 --batch 8 --node-cores 96 --node-memory 1.5T --node-disk 30T"
    if met:
        assert planned(words).nodes > 0
    else:
        with pytest.raises(InvalidArgument, match="latency_ms"):
            planned(words)
