"""Chat templates render as in transformers, and are found in the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from suffolk.build_index.chat_template import ChatTemplate, find_chat_template
from suffolk.build_index.message_forms import generic_messages
from suffolk.datastore.errors import Corruption, InvalidArgument
from tests.support.tiny_models import tiny_tokenizer

CHAT = [
    {"role": "system", "content": "Be <b>brief</b>."},
    {"role": "user", "content": "Add 1 and 2 – please."},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1, "b": "é"}}}],
    },
    {"role": "tool", "content": "3"},
    {"role": "assistant", "content": "  3  "},
]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
TEMPLATES = {
    "plain": "{% for m in messages %}\n<|{{ m.role }}|>{{ m['content'] | trim }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "tools": "{%- if tools %}{% for tool in tools %}{{ tool | tojson(indent=2) }}{% endfor %}{% endif %}\n"
    "{%- for m in messages %}{% if m.tool_calls is defined %}{{ m.tool_calls[0].function.arguments | tojson }}"
    "{% endif %}{{ m.content }}{% endfor %}",
    "controls": "{% set ns = namespace(seen=0) %}{% for m in messages %}{% if m.role == 'system' %}{% continue %}"
    "{% endif %}{% set ns.seen = ns.seen + 1 %}{% if ns.seen > 2 %}{% break %}{% endif %}    {% generation %}"
    "[{{ m.content }}]{% endgeneration %}{% endfor %}{{ ns.seen }} {{ strftime_now('%Y') }} {{ bos_token is defined }}",
}


def save(folder: Path, template: str | None) -> Any:
    """Save a tokenizer with this template; return the tokenizer from transformers."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("asking", [False, True])
@pytest.mark.parametrize("tools", [(), TOOLS])
def test_the_text_is_that_of_transformers(tmp_path: Path, name: str, asking: bool, tools: Any) -> None:
    tokenizer = save(tmp_path, TEMPLATES[name])
    template = find_chat_template(tmp_path)
    assert template is not None
    chat = CHAT if name == "tools" else generic_messages(CHAT, tools)
    expected = tokenizer.apply_chat_template(
        chat, tools=list(tools) or None, tokenize=False, add_generation_prompt=asking
    )
    assert template.render(CHAT, tools, asking) == expected


@pytest.mark.parametrize("form", ["one", "named", "old", "files"])
def test_the_template_of_older_and_newer_folders_is_found(tmp_path: Path, form: str) -> None:
    save(tmp_path, None)
    assert find_chat_template(tmp_path) is None
    source, file = "{{ messages[0].content }}{{ eos_token }}", tmp_path / "tokenizer_config.json"
    config = json.loads(file.read_text()) | {"eos_token": {"content": "</s>"}}
    named = [{"name": "default", "template": source}, {"name": "tool_use", "template": "with tools"}]
    file.write_text(
        json.dumps(config | {"one": {"chat_template": source}, "named": {"chat_template": named}}.get(form, {}))
    )
    if form == "old":
        (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": source}))
    if form == "files":
        (tmp_path / "chat_template.jinja").write_text(source)
        (tmp_path / "additional_chat_templates").mkdir()
        (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("with tools")
    for place in (tmp_path, tmp_path / "tokenizer.json"):
        template = find_chat_template(place)
        assert template is not None
        assert template.render(CHAT) == "Be <b>brief</b>.</s>"
        offered = generic_messages(CHAT, TOOLS)[0]["content"]
        assert template.render(CHAT, TOOLS) == ("with tools" if form in ("named", "files") else f"{offered}</s>")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must\\nalternate') }}", r"rejects it \(roles must alternate\)"),
        ("{{ messages.append(1) }}", "rejects it"),
        ("{{ ''.__class__.__mro__ }}", "rejects it"),
        ("{{ missing.name.of }}", "rejects it"),
    ],
)
def test_what_a_template_refuses_is_one_error(source: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        ChatTemplate({"default": source}, {}).render(CHAT)


def test_a_broken_template_is_named(tmp_path: Path) -> None:
    save(tmp_path, "{% for %}")
    with pytest.raises(Corruption, match="its chat template is not valid Jinja"):
        find_chat_template(tmp_path)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("messages[0].role == 'system'", "<user>Be brief.\n\nHello\n\nAgain<assistant>Hi"),
        ("messages[1].role == messages[2].role", "<system>Be brief.<user>Hello\n\nAgain<assistant>Hi"),
        ("messages | length < 9", None),
    ],
)
def test_a_rejected_conversation_is_rendered_in_a_simpler_form(rule: str, expected: str | None) -> None:
    """As in the worker. Regression: Gemma 2 has no role for the system, and builds left such conversations out."""
    source = f"{{% if {rule} %}}{{{{ raise_exception('no') }}}}{{% endif %}}"
    template = ChatTemplate(
        {"default": source + "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"}, {}
    )
    pairs = (("system", "Be brief."), ("user", "Hello"), ("user", "Again"), ("assistant", "Hi"))
    chat = [{"role": role, "content": content} for role, content in pairs]
    if expected is None:
        with pytest.raises(InvalidArgument, match="the chat template rejects it"):
            template.render(chat)
    else:
        assert template.render(chat) == expected
