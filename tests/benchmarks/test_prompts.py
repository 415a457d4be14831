"""Tests prompts from files: their names, groups, styles and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from research.exclusions import read_excluded, require_named
from suffolk.benchmarks.prompts import load_prompts
from suffolk.datastore.errors import InvalidArgument, NotFound
from tests.support.json_lines import write_rows


@pytest.mark.parametrize("message", [{"role": "user"}, "x", 3])
def test_messages_without_content_are_named(tmp_path: Path, message: object) -> None:
    write_rows(tmp_path / "p.jsonl", [{"text": "a"}, {"messages": [message]}])
    with pytest.raises(InvalidArgument, match=r"p\.jsonl line 2: 'messages' must be a list"):
        load_prompts([tmp_path], "both", None, 0)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": None}, "'prompt' is None; give a text"),
        ({"text": float("nan")}, "'text' is nan; give a text"),
        ({"messages": [{"role": "user", "content": None}]}, r"'messages\[0\].content' is None; give a text"),
        ({"messages": [{"role": "user", "content": "a"}], "prefill": 5}, "'prefill' is 5; give a text"),
    ],
)
def test_values_that_are_no_texts_are_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    """Regression: null became the prompt "None"."""
    write_rows(tmp_path / "p.jsonl", [row])
    with pytest.raises(InvalidArgument, match=rf"p\.jsonl line 1: {message}"):
        load_prompts([tmp_path], "both", None, 0)


def test_rows_that_are_not_objects_are_reported(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text("[1]\n")
    with pytest.raises(InvalidArgument, match=r"p\.jsonl line 1: the row is not an object"):
        load_prompts([tmp_path], "both", None, 0)


def test_exclusions_that_match_no_prompt_are_rejected(tmp_path: Path) -> None:
    write_rows(tmp_path / "p.jsonl", [{"id": "one", "text": "a"}, {"text": "b"}])
    require_named(frozenset(), [tmp_path])
    require_named(frozenset({"one", "p.jsonl:2"}), [tmp_path])
    with pytest.raises(InvalidArgument, match="2 of 3 names match no prompt, for example 'p.jsonl:9'"):
        require_named(frozenset({"one", "two", "p.jsonl:9"}), [tmp_path])


def test_an_exclusion_file_has_one_name_a_line(tmp_path: Path) -> None:
    (tmp_path / "drop.txt").write_text("a/1\nb 2\n")
    assert read_excluded(tmp_path / "drop.txt") == {"a/1", "b 2"}
    with pytest.raises(NotFound, match="one prompt id a line"):
        read_excluded(tmp_path / "none.txt")


def test_bytes_that_are_not_utf8_are_reported_with_their_line(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.jsonl"
    rubbish.write_bytes(b'{"prompt": "a"}\n\xff\xfe\x00')
    with pytest.raises(InvalidArgument, match="line 2: byte 0xff is not UTF-8"):
        load_prompts([rubbish], "both", None, 0)
    with pytest.raises(InvalidArgument, match="line 2: byte 0xff is not UTF-8"):
        read_excluded(rubbish)


def test_prompts_of_both_styles(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "question"}]
    write_rows(tmp_path / "b.jsonl", [{"id": "x", "set": "code", "messages": messages, "prefill": "def f("}])
    write_rows(tmp_path / "a.jsonl", [{"prompt": "once"}, {"text": "upon"}])
    found = load_prompts([tmp_path], "both", None, 0)
    assert [(each.name, each.group, each.text) for each in found] == [
        ("a.jsonl:1", "a", "once"),
        ("a.jsonl:2", "a", "upon"),
        ("x", "code, chat", ""),
        ("x", "code, prefill", "def f("),
    ]
    assert [each.group for each in load_prompts([tmp_path / "b.jsonl"], "prefill", None, 0)] == ["code, prefill"]


def test_prompt_limit_picks_by_seed_and_keeps_the_order(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_rows(path, [{"prompt": str(number)} for number in range(50)])
    texts = [[int(each.text) for each in load_prompts([path], "chat", 5, seed)] for seed in (0, 0, 1)]
    assert texts[0] == texts[1] == sorted(texts[0])
    assert texts[0] != texts[2]
    assert len(set(texts[0])) == 5


def test_bad_prompts_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no .jsonl file"):
        load_prompts([tmp_path], "chat", None, 0)
    with pytest.raises(NotFound, match="missing.jsonl"):
        load_prompts([tmp_path / "missing.jsonl"], "chat", None, 0)
    write_rows(tmp_path / "a.jsonl", [{"question": "x"}])
    with pytest.raises(InvalidArgument, match="line 1: no 'messages' and no 'prompt'"):
        load_prompts([tmp_path / "a.jsonl"], "chat", None, 0)
    (tmp_path / "b.jsonl").write_text("\n{oops\n")
    with pytest.raises(InvalidArgument, match="b.jsonl line 2"):
        load_prompts([tmp_path / "b.jsonl"], "chat", None, 0)
