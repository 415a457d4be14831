"""Tests corpora of conversations, logs of OpenAI's API, and recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from suffolk.build_index.builder import build, plan_build
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.report import BuildReport
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from tests.support.building import read_documents, write_tokenizer
from tests.support.forked import suffolk
from tests.support.json_lines import write_rows

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'human' %}{{ raise_exception('unknown role') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}{% for call in m.tool_calls %}{{ call.function.arguments.x }}{% endfor %}"
    "<|im_end|>\n{% endfor %}"
)
OPENAI = {"messages": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "It's 4."}]}
SHAREGPT = {
    "id": "a7",
    "conversations": [{"from": "human", "value": "What is 2 + 2?"}, {"from": "gpt", "value": "It's 4."}],
}
PARTS = {
    "messages": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "What is 2 + 2?"}, {"type": "image_url", "image_url": {}}],
        },
        {
            "role": "assistant",
            "content": [{"type": "reasoning", "text": "Easy."}, {"type": "text", "text": "It's 4."}],
            "tool_calls": None,
            "refusal": None,
        },
    ]
}
LOGGED = {
    "request": {"model": "m", "messages": OPENAI["messages"][:1]},
    "response": {"choices": [{"message": {"role": "assistant", "content": "It's 4."}, "finish_reason": "stop"}]},
}
TEXT = "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\nIt's 4.<|im_end|>\n"
CALL = {"type": "function", "function": {"name": "f", "arguments": '{"x": 7}'}}


def model(folder: Path, template: str | None = TEMPLATE) -> str:
    """A folder with the tokenizer of the tests and a chat template."""
    place = write_tokenizer(folder)
    if template is not None:
        Path(place, "chat_template.jinja").write_text(template)
    return place


def made(folder: Path, *corpora: Path, **more: Any) -> BuildReport:
    given = {"tokenizer": model(folder), "threads": 1} | more
    return build(BuildOptions(tuple(map(str, corpora)), folder / "store", **given))


def texts(folder: Path) -> list[str]:
    tokenizer = load_tokenizer(folder / "tokenizer")
    return [tokenizer.decode(ids, skip_special_tokens=False) for _, ids in read_documents(folder / "store")]


@pytest.mark.parametrize("record", [OPENAI, SHAREGPT, PARTS, LOGGED], ids=["openai", "sharegpt", "parts", "logged"])
@pytest.mark.parametrize("records", ["auto", "chat"])
def test_a_conversation_is_one_document_in_the_models_words(tmp_path: Path, record: Any, records: str) -> None:
    report = made(tmp_path, write_rows(tmp_path / "a.jsonl", [record, record]), records=records)
    assert report.documents == 2
    assert texts(tmp_path) == [TEXT, TEXT]
    [first, _] = read_documents(tmp_path / "store")
    assert first[1].count(1) == 2  # <|im_start|> is one token, not its letters


def test_tool_calls_are_written_with_their_arguments(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "f"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]}
    made(tmp_path, write_rows(tmp_path / "a.jsonl", [row]))
    assert texts(tmp_path) == ["<|im_start|>user\nf<|im_end|>\n<|im_start|>assistant\n7<|im_end|>\n"]


MISTRAL = (
    "{% for m in messages %}{% for each in ([m.tool_call_id] if m.role == 'tool' else m.tool_calls | map(attribute='id')) %}"
    "{% if each is not defined or each | length != 9 %}{{ raise_exception('ids have 9 characters') }}{% endif %}"
    "{% endfor %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
LLAMA = (
    "{% for m in messages %}{% if 'tool_calls' in m and m.tool_calls | length != 1 %}{{ raise_exception('one call') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)


@pytest.mark.parametrize("template", [MISTRAL, LLAMA])
def test_templates_that_are_strict_about_calls_take_those_of_others(tmp_path: Path, template: str) -> None:
    """Regression: long ids, and empty lists of calls, left the conversation out."""
    call = CALL | {"id": "call_of_another_model"}
    rows = [
        {"role": "user", "content": "a", "tool_calls": []},
        {"role": "assistant", "content": "b", "tool_calls": [call]},
        {"role": "tool", "content": "7", "tool_call_id": call["id"]},
    ]
    corpus = write_rows(tmp_path / "a.jsonl", [{"messages": rows}])
    build(BuildOptions((str(corpus),), tmp_path / "store", tokenizer=model(tmp_path, template), threads=1))
    assert texts(tmp_path) == ["<user>a<assistant>b<tool>7"]


def test_the_text_field_comes_first_and_lines_may_differ(tmp_path: Path) -> None:
    rows = [OPENAI | {"text": "plain"}, {"text": "plain"}, OPENAI]
    corpus = write_rows(tmp_path / "a.jsonl", rows)
    made(tmp_path, corpus)
    assert texts(tmp_path) == ["plain", "plain", TEXT]
    with pytest.raises(InvalidArgument, match=r"a.jsonl:2: no conversation; the record has text; 'messages' or"):
        made(tmp_path, corpus, records="chat", mode="replace")
    with pytest.raises(InvalidArgument, match=r"a.jsonl:3: no field 'text'; the record has messages"):
        made(tmp_path, corpus, records="text", mode="replace")


def test_ids_and_metadata_are_kept(tmp_path: Path) -> None:
    corpus = write_rows(tmp_path / "a.jsonl", [SHAREGPT | {"lang": "en"}])
    made(tmp_path, corpus, id_field="id", metadata=("lang",))
    with open_datastore(tmp_path / "store") as store:
        [document] = store.documents()
        assert (document.source, dict(document.metadata)) == (f"{corpus}#a7", {"lang": "en"})


def test_conversations_of_parquet(tmp_path: Path) -> None:
    rows = pyarrow.table({"conversations": [SHAREGPT["conversations"]] * 300, "id": list(range(300))})
    parquet.write_table(rows, tmp_path / "a.parquet")
    report = made(tmp_path, tmp_path / "a.parquet", id_field="id")
    assert report.documents == 300
    assert set(texts(tmp_path)) == {TEXT}
    assert read_documents(tmp_path / "store")[299][0] == f"{tmp_path / 'a.parquet'}#299"


def test_messages_may_be_maps(tmp_path: Path) -> None:
    """As Spark writes objects of texts."""
    kind = pyarrow.list_(pyarrow.map_(pyarrow.string(), pyarrow.string()))
    messages = [[list(message.items()) for message in SHAREGPT["conversations"]]]
    parquet.write_table(pyarrow.table({"conversations": pyarrow.array(messages, kind)}), tmp_path / "a.parquet")
    made(tmp_path, tmp_path / "a.parquet")
    assert texts(tmp_path) == [TEXT]


def test_lists_may_be_json_text_and_the_system_a_field(tmp_path: Path) -> None:
    """As tables with columns of text, Json columns of `datasets`, LLaMA-Factory's data sets and Anthropic's requests have them."""
    template = TEMPLATE + "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
    [asked, answer], tools = OPENAI["messages"], [{"type": "function", "function": {"name": "add"}}]
    called, system = answer | {"tool_calls": [CALL]}, {"role": "system", "content": "Be brief."}
    expected = {"messages": [system, asked, called], "tools": tools}
    rows = [
        expected,
        {"messages": json.dumps([system, asked, called]), "tools": json.dumps(tools)},
        {"messages": [system, asked, called | {"tool_calls": json.dumps([CALL])}], "tools": tools},
        {"messages": [json.dumps(system), json.dumps(asked), json.dumps(called)], "tools": [json.dumps(tools[0])]},
        {"system": "Be brief.", "messages": [asked, called], "tools": tools},
        {"system": [{"type": "text", "text": "Be brief."}], "messages": [asked], "response": called, "tools": tools},
        {"conversations": [{"from": "human", "value": asked["content"], "role": None, "content": None}, called]}
        | {"tools": json.dumps(tools), "system": "Be brief."},
    ]
    (tmp_path / "m").mkdir()
    made(tmp_path, write_rows(tmp_path / "a.jsonl", rows), tokenizer=model(tmp_path / "m", template))
    assert texts(tmp_path) == [f"<|im_start|>system\nBe brief.<|im_end|>\n{TEXT[:-11]}7<|im_end|>\nadd"] * len(rows)


def test_conversations_of_parquet_have_the_fields_that_were_written(tmp_path: Path) -> None:
    """Structs of one column have the same fields, so that one function's arguments hold nulls for another's."""
    template = "{{ tools | tojson }}{% for m in messages %}{{ m.role }} {{ (m.tool_calls or []) | tojson }}{% endfor %}"
    tools = [{"function": {"name": "f", "parameters": {"x": {"type": "string"}}}}, {"function": {"name": "g"}}]
    calls = [{"function": {"name": "f", "arguments": {"x": 7}}}, {"function": {"name": "g", "arguments": {"y": [1]}}}]
    rows = [{"messages": [{"role": "assistant", "tool_calls": calls}], "tools": tools, "system": "Be brief."}]
    texted = [{name: value if name == "system" else json.dumps(value) for name, value in row.items()} for row in rows]
    (tmp_path / "m").mkdir()
    for name, table in (("a", rows), ("b", texted)):
        parquet.write_table(pyarrow.Table.from_pylist(table), tmp_path / f"{name}.parquet")
    corpora = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    made(tmp_path, *corpora, tokenizer=model(tmp_path / "m", template))
    assert texts(tmp_path) == [f"{json.dumps(tools)}system []assistant {json.dumps(calls)}"] * 2


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_conversations_that_are_null_are_left_out(tmp_path: Path, form: str) -> None:
    rows = [{"messages": OPENAI["messages"]}, {"messages": None}]
    corpus = tmp_path / f"a.{form}"
    if form == "jsonl":
        write_rows(corpus, rows)
    else:
        parquet.write_table(pyarrow.Table.from_pylist(rows), corpus)
    assert made(tmp_path, corpus).documents == 1
    with pytest.raises(InvalidArgument, match="no field 'text'"):
        made(tmp_path, write_rows(tmp_path / "b.jsonl", rows), records="text", mode="replace")


def test_records_without_a_document_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    refused = {"messages": [{"role": "human", "content": "x"}]}
    failed = LOGGED | {"response": {"error": {"message": "overloaded"}}}
    corpus = write_rows(tmp_path / "a.jsonl", [OPENAI, refused, failed, {"messages": []}])
    done = suffolk("build", "--tokenizer", model(tmp_path), "--output", tmp_path / "store", corpus)
    assert done.returncode == 0, done.stderr
    assert "a.jsonl:2: the chat template rejects it (unknown role); the summary counts such records" in done.stderr
    assert "left out   3 records without a document" in done.stdout
    assert texts(tmp_path) == [TEXT]
    write_rows(corpus, [failed])
    with pytest.raises(
        InvalidArgument, match=r"no tokens \(1 record left out, the first .*:1: a request without an answer"
    ):
        made(tmp_path, corpus, mode="replace")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": "hello"}, "a.jsonl:1: 'messages' is of type str; it must be a list of objects"),
        ({"messages": [{"content": "x"}]}, "a.jsonl:1: 'messages', message 0 is not an object with a 'role'"),
        ({"conversations": [{"from": "human", "value": 5}]}, "'conversations', message 0 has content of type int"),
        (OPENAI | {"tools": "search"}, "a.jsonl:1: 'tools' is of type str; it must be a list of objects"),
        (
            {"messages": [OPENAI["messages"][0] | {"tool_calls": {}}, {"role": "x", "tool_calls": 5}]},
            "1: 'tool_calls' is of",
        ),
    ],
)
def test_malformed_conversations_are_named(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        made(tmp_path, write_rows(tmp_path / "a.jsonl", [row]))


def test_without_a_chat_template_there_is_one_error(tmp_path: Path) -> None:
    corpus = write_rows(tmp_path / "a.jsonl", [OPENAI])
    with pytest.raises(
        InvalidArgument, match=r"a.jsonl:1: a conversation, and the tokenizer has no chat template; give a"
    ):
        build(BuildOptions((str(corpus),), tmp_path / "store", tokenizer=model(tmp_path, None)))
    made(tmp_path, corpus)
    with pytest.raises(InvalidArgument, match="no chat template; give a model folder"):
        made(tmp_path, corpus, tokenizer=None, mode="append")


def test_records_needs_records(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InvalidArgument, match=r"records: chat has no effect: no corpus is a .* file; leave --records"):
        made(tmp_path, tmp_path / "a.txt", records="chat")


def recording(folder: Path, **changes: Any) -> dict[str, Any]:
    mark = fingerprint(load_tokenizer(folder / "tokenizer"))
    return {"recording": 1, "tokenizer": mark, "prompt": [1, 5, 9], "generated": [300, 2], "model": "m"} | changes


def test_recorded_tokens_are_taken_as_they_are(tmp_path: Path) -> None:
    model(tmp_path)
    corpus = write_rows(tmp_path / "day.jsonl", [recording(tmp_path), OPENAI, recording(tmp_path, prompt=[7])])
    report = made(tmp_path, corpus)
    found = [ids for _, ids in read_documents(tmp_path / "store")]
    assert (found[0], found[2]) == ([1, 5, 9, 300, 2], [7, 300, 2])
    assert report.documents == 3
    options = BuildOptions((str(corpus),), tmp_path / "other", tokenizer=model(tmp_path), records="recording")
    write_rows(corpus, [recording(tmp_path)] * 1000)
    assert plan_build(options).tokens == 5000


def test_recordings_without_a_tokenizer_need_none(tmp_path: Path) -> None:
    corpus = write_rows(tmp_path / "day.jsonl", [recording(Path(model(tmp_path)).parent, tokenizer=None)])
    made(tmp_path, corpus, tokenizer=None, vocab_size=500)
    assert [ids for _, ids in read_documents(tmp_path / "store")] == [[1, 5, 9, 300, 2]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tokenizer": "f" * 64},
            "day.jsonl:1: recorded with tokenizer ffffffffffff, but the datastore has .*--tokenizer",
        ),
        ({"tokenizer": None}, "recorded with tokenizer none, but the datastore has"),
        ({"generated": [9999]}, "day.jsonl:1: 9999 is not a token id below 600"),
        ({"prompt": "text"}, "day.jsonl:1: field 'prompt' is of type str"),
        ({"recording": 2}, "day.jsonl:1: a recording of format 2; this version reads 1"),
    ],
)
def test_recordings_of_other_models_are_refused(tmp_path: Path, changes: Any, message: str) -> None:
    model(tmp_path)
    with pytest.raises(InvalidArgument, match=message):
        made(tmp_path, write_rows(tmp_path / "day.jsonl", [recording(tmp_path, **changes)]))
    with pytest.raises(InvalidArgument, match="not a recording; name a file that --record has written"):
        made(tmp_path, write_rows(tmp_path / "day.jsonl", [OPENAI]), records="recording")


def test_several_processes_read_the_same(tmp_path: Path) -> None:
    rows = [json.loads(json.dumps(OPENAI)) | {"n": "x" * 2000} for _ in range(3000)]
    corpus = write_rows(tmp_path / "a.jsonl", rows)
    report = made(tmp_path, corpus, threads=2)
    assert report.workers == 2
    assert texts(tmp_path) == [TEXT] * 3000
