"""Tests that logs of OpenAI's API, and conversations, are read as recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.decoding.replay.read import LogReader, read_recordings
from tests.support.building import make_texts, tokenize, write_jsonl, write_tokenizer
from tests.support.json_lines import write_rows
from tests.support.without_models import suffolk

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'human' %}{{ raise_exception('unknown role') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}{% for call in m.tool_calls %}{{ call.function.arguments.x }}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ASK = [{"role": "user", "content": "return value"}]
SAID = {"role": "assistant", "content": "def foo(x)"}
PROMPT = "<|im_start|>user\nreturn value<|im_end|>\n<|im_start|>assistant\n"
CHOICE = {"index": 0, "message": SAID, "finish_reason": "stop"}
REQUEST, RESPONSE = {"model": "m", "messages": ASK, "max_tokens": 50}, {"choices": [CHOICE]}
CHUNKS = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "def "}}]},
    {"choices": [{"index": 0, "delta": {"content": "foo(x)"}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"total_tokens": 9}},
]
FORMS = {
    "nested": {"request": REQUEST, "response": RESPONSE},
    "bodies": {"request": {"method": "POST", "body": REQUEST}, "response": {"status_code": 200, "body": RESPONSE}},
    "strings": {"request": json.dumps(REQUEST), "response": json.dumps(RESPONSE)},
    "litellm": {
        "id": "7",
        "call_type": "acompletion",
        "model": "m",
        "messages": ASK,
        "response": RESPONSE,
        "stream": False,
    },
    "helicone": {"request_body": REQUEST, "response_body": RESPONSE},
    "messages": {"input": {"messages": ASK}, "output": SAID},
    "stream": {"request": REQUEST | {"stream": True}, "response": CHUNKS},
    "openai": {"messages": [*ASK, SAID]},
    "sharegpt": {"conversations": [{"from": "human", "value": "return value"}, {"from": "gpt", "value": "def foo(x)"}]},
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = Path(write_tokenizer(tmp_path))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    (folder / "config.json").write_text('{"vocab_size": 640}')
    return folder


def read(folder: Path, model: Path, *rows: Any) -> list[Any]:
    return read_recordings([write_rows(folder / "log.jsonl", rows)], LogReader(model))


@pytest.mark.parametrize("form", FORMS)
def test_the_answer_is_what_the_model_generates(tmp_path: Path, model: Path, form: str) -> None:
    [found] = read(tmp_path, model, FORMS[form])
    assert found.prompt.tolist() == tokenize(PROMPT)
    assert found.generated.tolist() == [*tokenize("def foo(x)"), 2]  # and <|im_end|>
    assert (found.vocab_size, found.tokenizer) == (640, fingerprint(load_tokenizer(model)))


def test_choices_turns_and_completions_are_texts_of_their_own(tmp_path: Path, model: Path) -> None:
    cut = CHOICE | {"finish_reason": "length"}
    both = read(tmp_path, model, {"request": REQUEST, "response": {"choices": [CHOICE, cut]}})
    assert [each.generated.tolist() for each in both] == [[*tokenize("def foo(x)"), 2], tokenize("def foo(x)")]
    assert [each.settings.max_new_tokens for each in both] == [50, 50]
    turns = read(tmp_path, model, {"messages": [*ASK, SAID, *ASK, SAID]})
    assert len(turns) == 2
    assert turns[1].prompt.tolist() == tokenize(f"{PROMPT}def foo(x)<|im_end|>\n{PROMPT}")
    [text] = read(tmp_path, model, {"request": {"prompt": "return"}, "response": {"choices": [{"text": " value"}]}})
    assert (text.prompt.tolist(), text.generated.tolist()) == (tokenize("return"), tokenize(" value"))
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": '{"x": "foo"}'}}],
    }
    [called] = read(tmp_path, model, {"request": REQUEST, "response": {"choices": [{"message": call}]}})
    assert called.generated.tolist() == [*tokenize("foo"), 2]


def test_requests_without_an_answer_are_counted(tmp_path: Path, model: Path) -> None:
    failed = {"request": REQUEST, "response": {"error": {"message": "overloaded"}}}
    unanswered = {"request": REQUEST, "response": None}
    refused = {"request": {"messages": [{"role": "human", "content": "x"}]}, "response": RESPONSE}
    logs = LogReader(model)
    file = write_rows(tmp_path / "log.jsonl", [FORMS["nested"], failed, refused, unanswered])
    assert len(read_recordings([file], logs)) == 1
    assert logs.left_out == {"without an answer": 2, "because the chat template rejects it (unknown role)": 1}
    assert logs.first_left_out.endswith("log.jsonl line 2")
    with pytest.raises(
        InvalidArgument, match=r"log.jsonl: no answer to replay \(1 without an answer\); name a log with"
    ):
        read(tmp_path, model, failed)


def test_other_lines_are_named(tmp_path: Path, model: Path) -> None:
    with pytest.raises(
        InvalidArgument, match=r"log.jsonl line 2: no recording, no request with .*; the line has score"
    ):
        read(tmp_path, model, FORMS["nested"], {"score": 1})
    (model / "chat_template.jinja").unlink()
    with pytest.raises(
        InvalidArgument, match="line 1: a conversation, and the tokenizer has no chat template; give a model"
    ):
        read(tmp_path, model, FORMS["nested"])
    (tmp_path / "log.jsonl").write_text("{broken\n")
    with pytest.raises(Corruption, match="line 1: not JSON"):
        read_recordings([tmp_path / "log.jsonl"], LogReader(model))
    write_rows(tmp_path / "log.jsonl", [FORMS["nested"]])
    with pytest.raises(InvalidArgument, match="pass --tokenizer if the file is a log"):
        read_recordings([tmp_path / "log.jsonl"])


def test_the_command_replays_a_log_without_a_model(tmp_path: Path, model: Path) -> None:
    texts = make_texts(6)
    corpus, store = write_jsonl(tmp_path / "a.jsonl", texts), tmp_path / "store"
    assert suffolk("build", "--tokenizer", model, "--output", store, "--threads", "1", corpus).returncode == 0
    rows = [
        FORMS["nested"] | {"response": {"choices": [CHOICE | {"message": SAID | {"content": text}}]}} for text in texts
    ]
    log = write_rows(tmp_path / "log.jsonl", [*rows, FORMS["nested"] | {"response": {}}])
    done = suffolk("replay", log, "--tokenizer", model, "--datastore", store, "--drafter", "datastore")
    assert done.returncode == 0, done.stderr
    assert "requests left out: 1 without an answer; the first is of recording" in done.stderr
    [row] = [line.split() for line in done.stdout.splitlines() if line.startswith("datastore")]
    assert float(row[4]) > 3  # M: the texts are on file
