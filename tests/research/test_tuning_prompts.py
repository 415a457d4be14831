"""Tests the prompts to which constants are fitted."""

from __future__ import annotations

from pathlib import Path

from research.library_functions import library_functions
from research.tuning_prompts import tuning_rows, write_rows
from suffolk.benchmarks.prompts import load_prompts


def test_tuning_prompts_are_the_same_each_time_and_load_as_prompts(tmp_path: Path) -> None:
    rows = tuning_rows()
    assert rows == tuning_rows()
    assert {name: len(each) for name, each in rows.items()} == {"coding": 76, "chat": 24, "reasoning": 24}
    names = [row["id"] for each in rows.values() for row in each]
    assert len(set(names)) == len(names)
    for name, each in rows.items():
        write_rows(each, tmp_path / f"{name}.jsonl")
    prompts = load_prompts([tmp_path], "both", None, 0)
    assert sum(bool(prompt.text) for prompt in prompts) == 28
    assert all(prompt.messages for prompt in prompts)
    assert {prompt.group for prompt in prompts} == {"coding", "coding, chat", "coding, prefill", "chat", "reasoning"}


def test_library_functions_have_other_names_and_still_compile() -> None:
    functions = {f"{each.module}.{each.name}": each for each in library_functions()}
    assert len(functions) > 120
    for function in functions.values():
        compile(function.code, function.name, "exec")
        compile(function.head, function.name, "exec")
    heading = functions["textwrap.indent"].head.splitlines()[0]
    assert heading.startswith("def indent(")
    assert "predicate" not in heading
