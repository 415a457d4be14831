"""Tests which tokens of conversations and texts count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.decoding.drafters.training.documents import TrainingDocument, encode_row, render, render_question
from suffolk.serving.decoding.drafters.training.rows import Row
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import tiny_model, tiny_tokenizer
from tests.support.training_runs import conversation

PLAIN = (
    "{% if messages[0].role != 'system' %}[system]Be good.{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' %}<end>{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
"""A template with a default system prompt, and a line end after the end-of-answer token."""
FORGETFUL = (
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('|')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}<end>{% endfor %}{% if add_generation_prompt %}[assistant]think:{% endif %}"
)
"""A template that drops the reasoning (before "|") of all answers except the last, and adds a prefix that it does not keep."""
STRICT = "{% if messages[0].role != 'user' %}{{ raise_exception('a user must begin') }}{% endif %}" + PLAIN


def target(template: str = PLAIN, eos: bool = True) -> Target:
    model = tiny_model(vocab_size=257)
    model.generation_config.eos_token_id = 256 if eos else None
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return Target.wrap(model, tokenizer, "tiny", accelerate=False)


def counted_text(model: Target, document: TrainingDocument) -> list[str]:
    """Return the runs of counted tokens."""
    edges = np.flatnonzero(np.diff(document.counted.astype(int), prepend=0, append=0)).reshape(-1, 2)
    return [model.tokenizer.decode(document.tokens[begin:end]) for begin, end in edges]


def test_only_answers_count_up_to_the_mark_that_ends_them() -> None:
    model = target()
    (document,) = encode_row(model, Row("x", messages=conversation("Hi", "Hello", "And?", "Bye")))
    assert counted_text(model, document) == ["Hello<end>", "Bye<end>"]
    whole = model.tokenizer.apply_chat_template(list(conversation("Hi", "Hello", "And?", "Bye")), return_dict=True)[
        "input_ids"
    ]
    assert document.tokens.tolist() == whole
    unmarked = target(eos=False)
    (document,) = encode_row(unmarked, Row("x", messages=conversation("Hi", "Hello")))
    assert counted_text(unmarked, document) == ["Hello<end>\n"]


def test_what_follows_the_last_answer_is_left_out() -> None:
    model = target()
    (document,) = encode_row(model, Row("x", messages=conversation("Hi", "Hello", "And?")))
    assert model.tokenizer.decode(document.tokens) == "[system]Be good.[user]Hi\n[assistant]Hello<end>\n"


def test_a_template_that_rewrites_answers_gives_a_text_for_each_form() -> None:
    model = target(FORGETFUL)
    documents = encode_row(model, Row("x", messages=conversation("Hi", "hm|Hello", "And?", "so|Bye")))
    found = {model.tokenizer.decode(document.tokens): counted_text(model, document) for document in documents}
    assert found == {
        "[user]Hi<end>[assistant]hm|Hello<end>": ["hm|Hello<end>"],
        "[user]Hi<end>[assistant]Hello<end>[user]And?<end>[assistant]so|Bye<end>": ["so|Bye<end>"],
    }


def test_an_answer_before_any_question_does_not_count() -> None:
    model = target()
    messages = [{"role": "assistant", "content": "Welcome"}, *conversation("Hi", "Hello")]
    (document,) = encode_row(model, Row("x", messages=tuple(messages)))
    assert counted_text(model, document) == ["Hello<end>"]


@pytest.mark.parametrize(
    ("template", "messages", "said"),
    [
        (PLAIN, conversation("Hi"), "no answer of an assistant"),
        (PLAIN, (), "no answer of an assistant"),
        (STRICT, ({"role": "assistant", "content": "a"}, *conversation("b", "c")), "a user must begin"),
        ("", conversation("Hi", "Hello"), "has no chat template"),
    ],
)
def test_conversations_that_teach_nothing_are_refused(template: str, messages: Any, said: str) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template or None
    with pytest.raises(InvalidArgument, match=said):
        render(tokenizer, messages)


def test_the_question_of_a_conversation_ends_where_the_answer_begins() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = FORGETFUL
    expected = "[user]Hi<end>[assistant]think:"
    assert (
        render_question(tokenizer, conversation("Hi", "hm|Hello"))
        == render_question(tokenizer, conversation("Hi"))
        == expected
    )
    with pytest.raises(InvalidArgument, match="no question"):
        render_question(tokenizer, ())


def test_all_of_a_text_counts() -> None:
    (document,) = encode_row(target(), Row("x", text="abc"))
    assert document.tokens.tolist() == tiny_tokenizer()("abc")["input_ids"]
    assert document.counted.all()


def test_tokens_beyond_the_vocabulary_are_refused() -> None:
    model = Target.wrap(tiny_model(), tiny_tokenizer(), "small", accelerate=False)  # 97 ids
    with pytest.raises(Unsupported, match="model small: its tokenizer gives the id .* and its vocabulary has 97"):
        encode_row(model, Row("x", text="\xff"))


def document(size: int, key: bytes = b"\xff" * 32, begin: int = 0) -> TrainingDocument:
    return TrainingDocument(np.arange(size, dtype=np.int32), np.arange(size) >= begin, key)
