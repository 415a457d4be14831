"""Tests training runs on a tiny model: features, learning, accumulation, and rejected input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard

from suffolk.datastore.errors import InvalidArgument, NotFound, SuffolkError
from suffolk.serving.decoding.drafters.training import run
from suffolk.serving.decoding.drafters.training.corpus import Window
from suffolk.serving.decoding.drafters.training.features import FeatureSource
from suffolk.serving.decoding.drafters.training.heads import HEADS
from suffolk.serving.decoding.drafters.training.options import TrainOptions
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.linear_head import DEPTH, LinearHead, weights
from tests.support.tiny_models import VOCAB, save_tiny, tiny_model, tiny_tokenizer
from tests.support.training_runs import Listening, load, options, train


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3", "opt"])
def test_features_are_those_of_an_untouched_model(family: str) -> None:
    """A batch has windows of different lengths, longer than a sliding window, padded with tokens that do not count."""
    target, oracle = Target.wrap(tiny_model(family), accelerate=False), tiny_model(family)
    rng = np.random.default_rng(1)
    windows = [
        Window(rng.integers(0, VOCAB, size).astype(np.int32), rng.integers(0, 2, size) > 0) for size in (12, 30, 5, 21)
    ]
    source = FeatureSource(target, windows, (0, 1, 2), 3)
    for numbers in ([1, 0, 3], [2]):
        batch = source.batch(numbers)
        assert batch.features.shape == (len(numbers), max(len(windows[number].tokens) for number in numbers), 3, 32)
        assert not batch.features.is_inference()
        for row, number in enumerate(numbers):
            window, size = windows[number], len(windows[number].tokens)
            with torch.inference_mode():
                states = oracle(
                    torch.from_numpy(window.tokens.astype(np.int64))[None], output_hidden_states=True
                ).hidden_states
            for layer in (0, 1, 2):
                assert float((batch.features[row, :size, layer] - states[layer][0]).abs().max()) < 1e-9
            assert batch.tokens[row, :size].tolist() == window.tokens.tolist()
            assert batch.counted[row].tolist() == window.counted.tolist() + [False] * (batch.counted.shape[1] - size)


@pytest.mark.parametrize("layers", [(), (3,), (1, 1), (2, 0)])
def test_layers_that_the_model_has_not_are_refused(layers: tuple[int, ...]) -> None:
    window = Window(np.arange(9, dtype=np.int32), np.ones(9, np.bool_))
    with pytest.raises(InvalidArgument, match="the head wants hidden states of layers .* has 0..2"):
        FeatureSource(Target.wrap(tiny_model(), accelerate=False), [window], layers, 1)


def test_a_head_learns_and_its_folder_says_so(model: str, corpus: str, tmp_path: Path) -> None:
    output = tmp_path / "head"
    found = train(options(model, corpus, output, steps=60, evaluate_every=20, accumulate=2, learning_rate=0.1))
    curve = found["curve"]
    assert [point["step"] for point in curve] == [0, 20, 40, 60]
    assert curve[0]["held_out_acceptance"][0] < 0.2
    assert curve[0]["loss"] is None
    assert curve[-1]["held_out_loss"] < curve[0]["held_out_loss"] / 4
    assert min(curve[-1]["held_out_acceptance"]) > 0.8
    assert curve[-1]["loss"] < curve[1]["loss"]
    assert curve[-1]["acceptance"][0] > 0.8
    assert found["result"]["expected_tokens"] > 1.5
    assert sorted(path.name for path in output.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "training.json",
    ]
    assert json.loads((output / "training.json").read_text()) == found
    assert found["data"][0]["bytes"] == Path(corpus).stat().st_size
    assert found["corpus"]["documents"] + found["corpus"]["held_out_documents"] == 60
    card = (output / "README.md").read_text()
    for said in (
        found["data"][0]["sha256"],
        "| 60 |",
        "- learning rate: `0.1`",
        f"torch {torch.__version__}",
        "| acceptance |",
    ):
        assert said in card
    data = ModelCard(card).data
    assert (data.base_model, data.license, data.library_name) == (Path(model).name, "unknown", "suffolk")
    assert "linear" in data.tags
    measured = [round(share, 4) for share in found["result"]["held_out_acceptance"]]
    assert [each.metric_value for each in data.eval_results] == measured
    assert "Licence: unknown" in card
    assert "The speed-up is not measured here" in card
    assert list(tmp_path.iterdir()) == [output]
    head = LinearHead(load(model))
    head.load_state_dict(weights(output))


def test_a_card_claims_nothing_that_was_not_measured(model: str, corpus: str, tmp_path: Path) -> None:
    train(options(model, corpus, tmp_path / "head", held_out=0.0))
    card = ModelCard((tmp_path / "head" / "README.md").read_text())
    assert card.data.eval_results is None
    assert "model-index" not in card.data.to_dict()
    assert "Not measured: no documents were held out." in card.text


def test_the_target_stays_as_it_is(model: str, corpus: str, tmp_path: Path) -> None:
    loaded = load(model)
    before = {name: each.clone() for name, each in loaded.model.state_dict().items()}
    train(options(model, corpus, tmp_path / "head"))
    assert all(torch.equal(each, before[name]) for name, each in loaded.model.state_dict().items())
    assert all(each.grad is None for each in loaded.model.parameters())


def test_four_batches_of_one_make_the_step_of_one_batch_of_four(model: str, tmp_path: Path) -> None:
    corpus = tmp_path / "four.jsonl"
    texts = ["the first of four", "second text of th", "and here it goes!", "number four is it"]
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    common: dict[str, Any] = {"held_out": 0.0, "steps": 5}
    train(options(model, str(corpus), tmp_path / "one", batch=4, **common))
    train(options(model, str(corpus), tmp_path / "four", batch=1, accumulate=4, **common))
    one, four = weights(tmp_path / "one"), weights(tmp_path / "four")
    assert all(float((one[name] - four[name]).abs().max()) < 1e-9 for name in one)
    train(options(model, str(corpus), tmp_path / "other", batch=1, accumulate=2, **common))
    other = weights(tmp_path / "other")
    assert any(float((one[name] - other[name]).abs().max()) > 1e-4 for name in one)


class OneDepth(LinearHead):
    """A head of one depth, so that its loss is one mean."""

    def __init__(self, target: Target, **options: Any) -> None:
        super().__init__(target, **options)
        del self.maps[1]


def test_batches_count_by_their_tokens_when_they_are_added_up(model: str, tmp_path: Path) -> None:
    """A long text and a short one give the same step in one batch as in two batches."""
    corpus = tmp_path / "two.jsonl"
    corpus.write_text("\n".join(json.dumps({"text": text}) for text in ("a much longer text than the other", "short")))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HEADS, "linear", HEADS["linear"]._replace(maker=f"{__name__}:OneDepth"))
        for name, sizes in (("one", {"batch": 2}), ("two", {"batch": 1, "accumulate": 2})):
            train(options(model, str(corpus), tmp_path / name, held_out=0.0, steps=3, **sizes))
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(float((one[name] - two[name]).abs().max()) < 1e-9 for name in one)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"head": "medusa"}, "head is 'medusa'; it must be one of .*linear"),
        ({"head_options": {"width": 3}}, "head linear: unknown key 'width'"),
        ({"window": 5000}, "window is 5000; model .* takes 4096 tokens"),
    ],
)
def test_what_cannot_be_trained_is_refused_and_leaves_nothing(
    model: str, corpus: str, tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    chosen = options(model, corpus, tmp_path / "head")
    with pytest.raises(InvalidArgument, match=said):
        train(TrainOptions(**({name: getattr(chosen, name) for name in chosen.__dataclass_fields__} | more)))
    assert not list(tmp_path.iterdir())


def test_a_share_that_would_hold_nothing_out_holds_out_one_document(model: str, corpus: str, tmp_path: Path) -> None:
    listening = Listening()
    found = train(options(model, corpus, tmp_path / "head", held_out=0.0001, steps=1), listening)
    assert (found["corpus"]["documents"], found["corpus"]["held_out_documents"]) == (59, 1)
    assert any("1 documents held out (0.0001 of 60 would be none); 1 steps" in note for note in listening.notes)


@pytest.mark.parametrize("scaling", [{}, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}])
def test_a_window_beyond_the_model_is_refused_by_its_config_alone(
    corpus: str, tmp_path: Path, scaling: dict[str, Any]
) -> None:
    """The model folder has only a config, without weights or tokenizer. This is enough to refuse the window."""
    config = {"model_type": "llama", "max_position_embeddings": 2048} | scaling
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidArgument, match="window is 2049; model .* takes 2048 tokens, so give that or less"):
        run.train(options(str(tmp_path), corpus, tmp_path / "head", window=2049))
    with pytest.raises(NotFound, match="model"):
        run.train(options(str(tmp_path), corpus, tmp_path / "head", window=2048))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["a", "bcd"], f"2 documents of fewer than {DEPTH + 2} tokens.*the longest has 3"),
        (["abcdefgh"], "it is one document, so none can be held out"),
        ([], "nothing to read .1 empty"),
    ],
)
def test_a_corpus_without_text_is_refused(model: str, tmp_path: Path, texts: list[str], said: str) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    with pytest.raises(InvalidArgument, match=said):
        train(options(model, str(corpus), tmp_path / "head"))
    assert list(tmp_path.iterdir()) == [corpus]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"text": NaN}', "nothing to learn from .1 rows without a text .null or NaN.*; name files with text or conv"),
        ("NaN", "corpus.jsonl:1: null or NaN, not an object"),
    ],
)
def test_a_corpus_without_rows_is_refused_before_the_model_is_loaded(tmp_path: Path, line: str, said: str) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(f"{line}\n")
    with pytest.raises(InvalidArgument, match=said):
        train(options(str(tmp_path / "no model"), str(corpus), tmp_path / "head"))


def test_folders_that_hold_other_things_are_left_alone(model: str, corpus: str, tmp_path: Path) -> None:
    def refused(name: str, said: str, kind: type[SuffolkError] = InvalidArgument, resume: bool = False) -> None:
        with pytest.raises(kind, match=said):
            train(options(model, corpus, tmp_path / name), resume=resume)

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    refused("mine", "holds 'thesis.txt'")
    (tmp_path / "file").write_text("x")
    refused("file", "is a file")
    refused("none/head", "there is no folder", NotFound)
    refused("/proc", "is a mount point")
    refused("head", "nothing to go on with; leave --resume out", NotFound, resume=True)
    (tmp_path / "head.training").mkdir()
    (tmp_path / "head.training" / "notes.txt").write_text("mine")
    refused("head", "is where the work would lie, and holds 'notes.txt'")
    refused("head", "is where the work would lie", resume=True)
    (tmp_path / "empty").mkdir()
    train(options(model, corpus, tmp_path / "empty", steps=1))
    refused("empty", "holds a trained head already")
    assert (tmp_path / "mine" / "thesis.txt").exists()
    assert (tmp_path / "head.training" / "notes.txt").exists()


def test_a_corpus_may_be_the_folder_that_the_head_is_made_in(model: str, corpus: str, tmp_path: Path) -> None:
    (tmp_path / "letters.jsonl").write_text(Path(corpus).read_text())
    chosen = options(model, str(tmp_path), tmp_path / "head", head_options={"breaks_at": 6})
    with pytest.raises(InvalidArgument, match="the loss is nan"):
        train(chosen)
    assert [Path(file["path"]).name for file in train(chosen, resume=True)["data"]] == ["letters.jsonl"]


def test_of_conversations_the_answers_alone_are_learnt(corpus: str, tmp_path: Path) -> None:
    folder, tokenizer = save_tiny(tmp_path / "chatting"), tiny_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    tokenizer.save_pretrained(folder)
    question, answer = {"role": "user", "content": "Go on: abc"}, {"role": "assistant", "content": "defghijkl"}
    rows = [[question | {"content": f"Go on: {number}"}, answer] for number in range(30)] + [[question]]
    chats = tmp_path / "chats.jsonl"
    chats.write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))
    found = train(options(str(folder), str(chats), tmp_path / "head", steps=2))["corpus"]
    assert found["documents"] + found["held_out_documents"] == 30
    assert found["counted_tokens"] == 9 * found["documents"]
    assert found["skipped"] == {"rows: no answer of an assistant to a question": 1}
    assert "Left out: 1 rows: no answer" in (tmp_path / "head" / "README.md").read_text()
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(InvalidArgument, match="30 rows: a conversation, and the model has no chat template"):
        run.train(options(str(folder), str(chats), tmp_path / "other"))
