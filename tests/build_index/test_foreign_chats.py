"""Conversations of other programs are named with a command of jq that writes them as messages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from suffolk.build_index.documents import parse_documents
from suffolk.build_index.inputs import find_inputs
from suffolk.datastore.errors import InvalidArgument
from tests.support.build_blocks import blocks, options
from tests.support.json_lines import write_rows

MESSAGES = [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "No."}]
SHAREGPT = [{"from": "human", "value": "Rain?"}, {"from": "gpt", "value": "No."}]


def node(parent: str | None, role: str = "", *parts: Any) -> dict[str, Any]:
    message = {"author": {"role": role}, "content": {"content_type": "text", "parts": list(parts)}} if role else None
    return {"message": message, "parent": parent, "children": []}


TREE = {
    "root": node(None),
    "system": node("root", "system", ""),
    "asked": node("system", "user", {"asset_pointer": "image"}, "Rain?"),
    "first": node("asked", "assistant", "Perhaps."),
    "second": node("asked", "assistant", "No."),
}
CHATGPT = {"title": "t", "mapping": TREE, "current_node": "second"}
CLAUDE = {
    "uuid": "1",
    "chat_messages": [{"sender": "human", "text": "Rain?"}, {"sender": "assistant", "text": "No."}],
}


def lines_of(content: Any) -> str:
    return "".join(json.dumps(each) + "\n" for each in content)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (json.dumps([CHATGPT, CHATGPT]), MESSAGES),
        (json.dumps(CHATGPT, indent=1), MESSAGES),
        (json.dumps([{"mapping": TREE}]), MESSAGES),
        (json.dumps([CLAUDE, CLAUDE], indent=1), MESSAGES),
        (json.dumps([CLAUDE]), MESSAGES),
        (json.dumps(CLAUDE), MESSAGES),
        (json.dumps([SHAREGPT, SHAREGPT], indent=1), SHAREGPT),
        (json.dumps(SHAREGPT, indent=1), SHAREGPT),
        (lines_of([MESSAGES, MESSAGES]), MESSAGES),
        (lines_of([{"prompt": "Rain?", "rejected": MESSAGES[:1], "chosen": MESSAGES}] * 2), MESSAGES),
        (json.dumps([{"prompt": MESSAGES[:1], "chosen": MESSAGES[1:], "rejected": []}] * 2), MESSAGES),
    ],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_the_error_has_a_command_that_writes_messages(tmp_path: Path, name: str, content: str, expected: Any) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidArgument, match="jq -c") as raised:
        find_inputs(options(tmp_path / name))
    found = re.search(r"jq -c '([^']*)'", str(raised.value))
    assert found is not None
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    written = subprocess.run(["jq", "-c", found[1], tmp_path / name], capture_output=True, check=True, text=True)
    records = [json.loads(line) for line in written.stdout.splitlines()]
    assert records
    assert all(record == {"messages": expected} for record in records)
    (tmp_path / "b.jsonl").write_text(written.stdout)
    assert [file.kind for file in find_inputs(options(tmp_path / "b.jsonl")).files] == ["lines"]


def test_a_text_field_that_is_a_conversation_is_named(tmp_path: Path) -> None:
    corpus = write_rows(tmp_path / "a.jsonl", [{"chosen": MESSAGES, "rejected": MESSAGES}] * 2)
    with pytest.raises(InvalidArgument, match=r'as field \'messages\', as jq -c .*\["rejected"\]'):
        parse_documents(blocks(corpus, text_field="rejected")[0].payload, options(corpus, text_field="rejected"))
    parquet.write_table(pyarrow.table({"chosen": [MESSAGES]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidArgument, match="or rename a column of conversations to 'messages'"):
        find_inputs(options(tmp_path / "a.parquet"))


def test_messages_may_be_read_as_texts(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(MESSAGES))
    assert [file.kind for file in find_inputs(options(tmp_path, text_field="content")).files] == ["array"]
