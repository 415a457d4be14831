"""The parts of training, each alone: options, schedule, conversations, documents, windows, tallies, the cache of features."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from build_index.inputs import find_inputs
from datastore.errors import Corruption, InvalidArgument, NotFound, Unsupported
from serving.decoding.target import Target
from serving.drafters.training.conversation import render, render_question
from serving.drafters.training.corpus import AHEAD, cut, make_corpus
from serving.drafters.training.documents import Document, encode_row, is_held_out, key_of
from serving.drafters.training.feature_cache import FeatureCache
from serving.drafters.training.head import Batch, HeadLoss, TrainableHead
from serving.drafters.training.heads import HEADS
from serving.drafters.training.options import Regeneration, TrainOptions
from serving.drafters.training.order import batches_of
from serving.drafters.training.rows import Row, describe_files, read_rows, reading_options
from serving.drafters.training.schedule import learning_rate
from serving.drafters.training.tally import Tally, expected_tokens
from tests.tiny_models import tiny_model, tiny_tokenizer

PLAIN = (
    "{% if messages[0].role != 'system' %}[system]Be good.{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' %}<end>{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
"""A system prompt of its own, and a line end behind the mark that ends an answer."""
FORGETFUL = (
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('|')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}<end>{% endfor %}{% if add_generation_prompt %}[assistant]think:{% endif %}"
)
"""Drops the reasoning (before "|") of all answers but the last, and begins an answer with more than it keeps."""
STRICT = "{% if messages[0].role != 'user' %}{{ raise_exception('a user must begin') }}{% endif %}" + PLAIN


def options(*corpora: Path | str, **more: Any) -> TrainOptions:
    return TrainOptions(head="linear", model="M", corpora=tuple(map(str, corpora)) or ("x",), output=Path("/o"), **more)


def chat(*contents: str) -> tuple[dict[str, str], ...]:
    return tuple({"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(contents))


def target(template: str = PLAIN, eos: bool = True) -> Target:
    model = tiny_model(vocab_size=257)
    model.generation_config.eos_token_id = 256 if eos else None
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return Target.wrap(model, tokenizer, "tiny", accelerate=False)


def head_and_batch(kind: str) -> tuple[TrainableHead, Batch]:
    """A new head that is being trained, and a batch of random text in which all tokens count."""
    torch.manual_seed(0)
    model = Target.wrap(tiny_model())
    tokens = torch.randint(0, model.vocab_size, (3, 12))
    features = torch.randn(3, 12, 1, 32, dtype=model.dtype)
    return HEADS[kind](model, {}), Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), features)


def counted_text(model: Target, document: Document) -> list[str]:
    """The runs of tokens that count."""
    edges = np.flatnonzero(np.diff(document.counted.astype(int), prepend=0, append=0)).reshape(-1, 2)
    return [model.tokenizer.decode(document.tokens[begin:end]) for begin, end in edges]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"window": 7}, "window is 7; it must be between 8"),
        ({"batch": 1.5}, "batch is 1.5, of type float"),
        ({"draft_share": 0.0}, "draft_share is 0.0; it must be above 0 and at most 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be above 0"),
        ({"learning_rate": math.nan}, "learning_rate is nan"),
        ({"held_out": 0.6}, "held_out is 0.6; it must be between 0"),
        ({"steps": 3, "passes": 2.0}, "steps 3 and passes 2.0 are both given"),
        ({"passes": 0.0}, "passes is 0.0"),
        ({"dtype": "int8"}, "dtype 'int8' is unknown"),
        ({"seed": -1}, "seed is -1"),
        ({"corpora": ()}, "corpora: none given"),
    ],
)
def test_options_out_of_their_ranges_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        replace(options(), **wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1.0}, {"temperature": 1e-7}, {"max_new_tokens": 0}, {"slots": 5000}, {"prompt_tokens": "4"}],
)
def test_regeneration_out_of_its_ranges_is_refused(wrong: dict[str, Any]) -> None:
    """At once: temperatures that no answer can be drawn at were, after the model was loaded."""
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Regeneration(**wrong)


def test_steps_follow_from_passes() -> None:
    assert options(batch=4, accumulate=2, passes=3.0).count_steps(10) == 5  # 3 batches a pass
    assert options(batch=4).count_steps(9) == 3
    assert options(steps=7).count_steps(9) == 7
    assert options(passes=0.01).count_steps(2) == 1


def test_every_pass_sees_every_window_once_in_an_order_of_its_own() -> None:
    steps = [list(batches_of(step, 10, 4, 2, seed=5)) for step in range(6)]  # 3 batches a pass
    batches = [batch for step in steps for batch in step]
    assert [len(batch) for batch in batches] == [4, 4, 2] * 4
    passes = [sum(batches[begin : begin + 3], []) for begin in range(0, 12, 3)]
    assert all(sorted(each) == list(range(10)) for each in passes)
    assert len({tuple(each) for each in passes}) == 4
    assert list(batches_of(0, 10, 4, 2, seed=6)) != steps[0]


def test_the_rate_rises_and_then_falls_as_a_cosine() -> None:
    rates = [learning_rate(step, 100, 2.0, 0.1) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * step for step in range(1, 11)])
    assert rates[10] == 2.0
    assert rates[55] == pytest.approx(1.0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.001
    assert [learning_rate(step, 2, 1.0, 0.0) for step in range(2)] == pytest.approx([1.0, 0.5])
    assert learning_rate(4, 5, 1.0, 1.0) == 1.0


def test_only_answers_count_up_to_the_mark_that_ends_them() -> None:
    model = target()
    (document,) = encode_row(model, Row("x", messages=chat("Hi", "Hello", "And?", "Bye")))
    assert counted_text(model, document) == ["Hello<end>", "Bye<end>"]
    whole = model.tokenizer.apply_chat_template(list(chat("Hi", "Hello", "And?", "Bye")), return_dict=True)["input_ids"]
    assert document.tokens.tolist() == whole
    unmarked = target(eos=False)
    (document,) = encode_row(unmarked, Row("x", messages=chat("Hi", "Hello")))
    assert counted_text(unmarked, document) == ["Hello<end>\n"]


def test_what_follows_the_last_answer_is_left_out() -> None:
    model = target()
    (document,) = encode_row(model, Row("x", messages=chat("Hi", "Hello", "And?")))
    assert model.tokenizer.decode(document.tokens) == "[system]Be good.[user]Hi\n[assistant]Hello<end>\n"


def test_a_template_that_rewrites_answers_gives_a_text_for_each_form() -> None:
    model = target(FORGETFUL)
    documents = encode_row(model, Row("x", messages=chat("Hi", "hm|Hello", "And?", "so|Bye")))
    found = {model.tokenizer.decode(document.tokens): counted_text(model, document) for document in documents}
    assert found == {
        "[user]Hi<end>[assistant]hm|Hello<end>": ["hm|Hello<end>"],
        "[user]Hi<end>[assistant]Hello<end>[user]And?<end>[assistant]so|Bye<end>": ["so|Bye<end>"],
    }


def test_an_answer_before_any_question_does_not_count() -> None:
    model = target()
    messages = [{"role": "assistant", "content": "Welcome"}, *chat("Hi", "Hello")]
    (document,) = encode_row(model, Row("x", messages=tuple(messages)))
    assert counted_text(model, document) == ["Hello<end>"]


@pytest.mark.parametrize(
    ("template", "messages", "said"),
    [
        (PLAIN, chat("Hi"), "no answer of an assistant"),
        (PLAIN, (), "no answer of an assistant"),
        (STRICT, ({"role": "assistant", "content": "a"}, *chat("b", "c")), "a user must begin"),
        ("", chat("Hi", "Hello"), "has no chat template"),
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
    assert render_question(tokenizer, chat("Hi", "hm|Hello")) == render_question(tokenizer, chat("Hi")) == expected
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


def rows_of(path: Path, skipped: Counter[str] | None = None) -> list[Row]:
    chosen = reading_options(options(path))
    return list(read_rows(find_inputs(chosen), chosen, Counter() if skipped is None else skipped, lambda share: None))


def test_rows_are_texts_files_and_conversations(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("plain")
    lines = [{"text": "one \ud800 half"}, {"messages": chat("Hi", "x\udfff")}]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert [(row.text, row.messages) for row in rows_of(tmp_path)] == [
        ("plain", None),
        ("one \ufffd half", None),
        (None, chat("Hi", "x\ufffd")),
    ]
    (first, second) = describe_files(find_inputs(reading_options(options(tmp_path))))
    assert first.bytes == 5
    assert first.sha256 == hashlib.sha256(b"plain").hexdigest()
    assert first.sha256 != second.sha256


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"prompt": "x"}', "x.jsonl:1: neither 'messages' nor a text in 'text'; the line has the fields prompt"),
        ('{"text": 5}', "x.jsonl:1: neither"),
        ("[1]", "x.jsonl:1: a JSON list"),
        ("{", "x.jsonl:1: not a JSON value"),
        ('{"messages": {}}', "'messages' is of type dict; it must be a list"),
        ('{"messages": ["x"]}', "x.jsonl:1: message 0: is no object with a 'role'"),
        ('{"messages": [{"role": "user", "content": []}]}', "message 0: its 'content' is of type list"),
    ],
)
def test_lines_that_hold_nothing_to_learn_are_refused(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "x.jsonl").write_text(line)
    with pytest.raises(InvalidArgument, match=said):
        rows_of(tmp_path / "x.jsonl")


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(9))
    with pytest.raises(InvalidArgument, match="holds token ids; heads learn from text"):
        rows_of(tmp_path / "ids.npy")
    (tmp_path / "gone.txt").write_text("x")
    inputs = find_inputs(reading_options(options(tmp_path / "gone.txt")))
    (tmp_path / "gone.txt").unlink()
    with pytest.raises(NotFound, match="the file is gone"):
        describe_files(inputs)


def document(size: int, key: bytes = b"\xff" * 32, begin: int = 0) -> Document:
    return Document(np.arange(size, dtype=np.int32), np.arange(size) >= begin, key)


def test_windows_cover_a_document_without_what_is_too_short() -> None:
    sizes = [len(window.tokens) for window in cut(document(45), 20, 5)]
    assert sizes == [20, 20, 5]
    assert [len(window.tokens) for window in cut(document(44), 20, 5)] == [20, 20]
    assert [window.tokens[0] for window in cut(document(60, begin=21), 20, 5)] == [20, 40]
    assert not list(cut(document(20, begin=20), 20, 5))
    only_first = Document(np.arange(20, dtype=np.int32), np.arange(20) < AHEAD, b"")
    assert not list(cut(only_first, 20, 5))  # no draft can reach these


def test_held_out_documents_are_chosen_by_content_alone() -> None:
    keys = [key_of(f"document {number}") for number in range(4000)]
    shares = [sum(is_held_out(key, share) for key in keys) / 4000 for share in (0.0, 0.1, 0.5)]
    assert shares == pytest.approx([0.0, 0.1, 0.5], abs=0.03)
    documents = [document(20 + number % 7, key) for number, key in enumerate(keys)]
    one = make_corpus(documents, options(held_out=0.1), 2, Counter())
    other = make_corpus(documents[::-1], options(held_out=0.1, seed=9), 2, Counter())
    assert one.held_out_documents == other.held_out_documents == sum(is_held_out(key, 0.1) for key in keys)
    assert one.documents + one.held_out_documents == 4000


@pytest.mark.parametrize(
    ("documents", "more", "said"),
    [
        ([], {}, "corpus x: nothing to learn from .no documents at all.; name files with text"),
        (
            [document(3)],
            {},
            "1 documents of fewer than 4 tokens; a document needs 4 tokens, two more than the head's depth, and the longest "
            "has 3.; give longer texts",
        ),
        ([document(30, begin=30)], {}, "1 documents in which nothing counts"),
        (
            [document(3)],
            {"regenerate": Regeneration()},
            "the longest has 3.; raise max_new_tokens, or give longer prompts",
        ),
        (
            [document(30)],
            {"held_out": 0.1},
            "corpus x: it is one document, so none can be held out .* or held_out 0 to",
        ),
        ([document(30)] * 2, {"held_out": 0.1}, "it is one document"),
        ([document(30, b"\0" * 32)], {"held_out": 0.1}, "it is one document"),
    ],
)
def test_a_corpus_of_nothing_is_refused(documents: list[Document], more: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        make_corpus(documents, options(**({"held_out": 0.0} | more)), 2, Counter())


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("rows: a conversation, and the model has no chat template", "use a model that has one, or give texts"),
        ("rows: no answer of an assistant behind a question", "give conversations in which an assistant answers"),
        ("the chat template refuses it (a user must begin)", "write conversations as the model's template takes them"),
        ("prompts that leave no room in a window of 8 tokens", "give a larger window, or shorter prompts"),
        ("empty files", "name files with text or conversations"),
    ],
)
def test_advice_follows_the_reason_that_counts_most(reason: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make_corpus([document(3)] * 2, options(), 2, Counter({reason: 3}))
    assert str(caught.value) == (
        f"corpus x: nothing to learn from (3 {reason}, 2 documents of fewer than 4 tokens); {said}"
    )


@pytest.mark.parametrize(("share", "held_out"), [(1e-9, {1}), (0.5, {1, 2, 5})])
def test_of_few_documents_one_is_held_out_and_one_trained_on(share: float, held_out: set[int]) -> None:
    """The smallest hash at least, and all copies with it; the largest never."""
    documents = [document(20 + number, bytes([number]) * 32) for number in (5, 1, 2, 9, 1)]
    for order in (documents, documents[::-1]):
        corpus = make_corpus(order, options(held_out=share, seed=order[0].key[0]), 2, Counter())
        assert {len(window.tokens) - 20 for window in corpus.held_out} == held_out
        assert {len(window.tokens) - 20 for window in corpus.training} == {1, 2, 5, 9} - held_out
        assert corpus.held_out_documents == len(held_out) + 1
    assert not make_corpus(documents, options(held_out=0.0), 2, Counter()).held_out


def test_a_window_shorter_than_a_draft_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="window is 8; a head of depth 7 needs 9 tokens"):
        make_corpus([document(30)], options(window=8), 7, Counter())


def test_a_thinned_batch_begins_a_share_of_the_drafts_whose_first_token_counts() -> None:
    counted = torch.arange(1000).expand(8, 1000) % 10 < 5
    batch = Batch(torch.zeros(8, 1000, dtype=torch.int64), counted, torch.zeros(8, 1000, 1, 4))
    assert batch.starts.all()
    torch.manual_seed(0)
    first, second = batch.thin(0.25, 2).starts, batch.thin(0.25, 2).starts
    assert not (first[:, :-2] & ~counted[:, 2:]).any()
    assert not first[:, -2:].any()
    assert 0.22 < float(first.sum() / counted[:, 2:].sum()) < 0.28
    assert not torch.equal(first, second)
    assert torch.equal(batch.thin(1.0, 2).starts[:, :-2], counted[:, 2:])
    assert torch.equal(batch.thin(1.0, 1).starts[:, :-1], counted[:, 1:])


def test_where_nothing_counts_a_batch_is_not_thinned() -> None:
    counted = torch.tensor([[True, True, False, False]])
    batch = Batch(torch.zeros(1, 4, dtype=torch.int64), counted, torch.zeros(1, 4, 1, 4))
    assert batch.thin(0.5, 2).starts.all()


@pytest.mark.parametrize("kind", ["early-exit", "redrafter", "eagle"])
def test_however_small_the_share_one_draft_is_trained(kind: str) -> None:
    """A batch in which none was drawn had a loss without a gradient, or one that was no number, and ended the run."""
    head, batch = head_and_batch(kind)
    found = head.losses(batch.thin(1e-9, head.ahead))
    assert found.seen[0] == 1
    torch.autograd.backward(found.loss)
    grown = [each.grad for each in head.parameters() if each.grad is not None]
    assert grown
    assert all(bool(each.isfinite().all()) for each in grown)


@pytest.mark.parametrize("kind", ["early-exit", "redrafter", "eagle"])
def test_the_last_token_of_an_answer_is_trained_by_a_share_of_the_drafts_too(kind: str) -> None:
    """Exits, which predict the next token, were only begun where the one behind it counts: they never learned to end a text."""
    head, batch = head_and_batch(kind)
    counted = torch.zeros_like(batch.counted)
    counted[:, -1] = True
    assert head.losses(replace(batch, counted=counted).thin(1.0, head.ahead)).seen[0] == len(counted)


def test_a_tally_weighs_batches_by_what_they_count() -> None:
    tally, part = Tally(), Tally()
    tally.add(HeadLoss(torch.tensor(1.0), torch.tensor([3.0, 1.0]), torch.tensor([4.0, 3.0])))
    part.add(HeadLoss(torch.tensor(3.0), torch.tensor([3.0, 2.0]), torch.tensor([8.0, 3.0])))
    tally.merge(part)
    assert tally.mean_loss == pytest.approx((1 * 4 + 3 * 8) / 12)
    assert tally.acceptance == pytest.approx([0.5, 0.5])
    assert Tally.from_dict(json.loads(json.dumps(tally.to_dict()))).acceptance == tally.acceptance
    assert expected_tokens([0.5, 0.5]) == pytest.approx(0.75)
    assert Tally().mean_loss == 0.0
    assert Tally().acceptance == []


def window_features(number: int, tokens: int = 10) -> torch.Tensor:
    return torch.full((tokens, 1, 8), float(number), dtype=torch.float64)


def test_the_cache_keeps_features_up_to_its_limit(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "features", 5000, shard_bytes=1200)
    for number in range(0, 12, 2):
        cache.put({number: window_features(number), number + 1: window_features(number + 1)})
    cache.flush()
    stored = [number for number in range(12) if cache.get(number) is not None]
    assert cache.full
    assert stored == list(range(len(stored)))
    assert 4 <= len(stored) < 8
    files = list((tmp_path / "features").iterdir())
    assert len(files) == cache.shards > 1
    assert sum(file.stat().st_size for file in files) == cache.nbytes <= 5000
    for number in stored:
        found = cache.get(number)
        assert found is not None
        assert torch.equal(found, window_features(number))
    cache.put({50: window_features(50, 1)})
    assert cache.get(50) is None  # also when a smaller one would fit: what is kept does not depend on chance


def test_a_cache_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    first = FeatureCache(tmp_path, 10_000, shard_bytes=100)
    for number in range(3):
        first.put({number: window_features(number)})
    again = FeatureCache(tmp_path, 10_000, shard_bytes=100)
    again.take_over(2, False)
    assert [again.get(number) is not None for number in range(3)] == [True, True, False]
    assert len(list(tmp_path.iterdir())) == again.shards == 2
    again.put({5: window_features(5)})
    assert again.shards == 3
    (tmp_path / "features-00001.safetensors").write_bytes(b"damage")
    with pytest.raises(Corruption, match="features-00001.safetensors: cannot be read"):
        FeatureCache(tmp_path, 10_000).take_over(3, False)
