"""``suffolk.generate`` inside ``model.generate`` returns the same result as transformers' loop."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import StoppingCriteria, StoppingCriteriaList, TextIteratorStreamer
from transformers.generation.streamers import BaseStreamer

import suffolk
from suffolk.datastore.errors import InvalidArgument, NotFound, Unsupported
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import FoundCosts
from suffolk.serving.integrations.transformers import session
from tests.support.stores import make_store
from tests.support.tiny_models import VOCAB, tiny_model

PROMPTS = ([5, 6, 7, 5, 6, 7, 5, 6], [9, 9, 3], [1, 2, 3, 4, 1, 2, 3])
NEW = 40
HUB = Path(__file__).resolve().parents[3] / "hub"


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, model: Any) -> Path:
    """A datastore of the model's own greedy texts, so that drafts are accepted."""
    ids, mask = batch(PROMPTS)
    texts = model.generate(ids, attention_mask=mask, max_new_tokens=NEW, do_sample=False, pad_token_id=0)
    folder = tmp_path_factory.mktemp("store") / "own"
    make_store(folder, [[row[row != 0].tolist() for row in texts]], vocab_size=VOCAB).close()
    return folder


def batch(prompts: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask of left-padded prompts."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(each)) + each for each in prompts])
    mask = torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in prompts])
    return ids, mask


def both(model: Any, prompts: Any = PROMPTS, datastore: Path | None = None, **options: Any) -> tuple[Any, Any]:
    """The results of transformers' loop and of Suffolk's."""
    ids, mask = batch(prompts)
    options = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0, "attention_mask": mask} | options
    plain = model.generate(ids, **options)
    ours = model.generate(ids, **options, custom_generate=suffolk.generate, datastore=datastore)
    return plain, ours


class EndsWith(StoppingCriteria):
    """Ends a row at a token."""

    def __init__(self, token: int) -> None:
        self.token = token

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        return input_ids[:, -1] == self.token


class Collected(BaseStreamer):
    """Records its input."""

    def __init__(self) -> None:
        self.values: list[list[int]] = []
        self.ended = False

    def put(self, value: torch.Tensor) -> None:
        self.values.append(value.flatten().tolist())

    def end(self) -> None:
        self.ended = True


@pytest.mark.parametrize("prompts", [PROMPTS[:1], PROMPTS], ids=["one", "batch"])
@pytest.mark.parametrize("with_store", [False, True], ids=["prompt", "datastore"])
def test_greedy_ids_are_those_of_generate(model: Any, store: Path, prompts: Any, with_store: bool) -> None:
    plain, ours = both(model, prompts, store if with_store else None)
    assert torch.equal(plain, ours)


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3},
        {"no_repeat_ngram_size": 2},
        {"bad_words_ids": [[7], [5, 6]]},
        {"suppress_tokens": [6, 7, 8]},
        {"min_new_tokens": 10, "eos_token_id": 7},
        {"sequence_bias": {(5,): -4.0, (6, 7): 3.0}},
        {"forced_eos_token_id": 3, "eos_token_id": 3},
        {"exponential_decay_length_penalty": (3, 1.5), "eos_token_id": 7},
        {"prefix_allowed_tokens_fn": lambda row, ids: [row + 1, (len(ids) % 5) + 10, int(ids[-1])]},
        {
            "logits_processor": [
                lambda ids, scores: scores.masked_fill(scores == scores.max(1, keepdim=True).values, -9.0)
            ]
        },
        {"renormalize_logits": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_logits_processors_act_as_in_generate(model: Any, store: Path, options: dict[str, Any]) -> None:
    plain, ours = both(model, datastore=store, **options)
    assert torch.equal(plain, ours)


def test_scores_and_logits_are_those_of_generate(model: Any, store: Path) -> None:
    options = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True, "no_repeat_ngram_size": 3}
    plain, ours = both(model, datastore=store, **options)
    assert torch.equal(plain.sequences, ours.sequences)
    for name in ("scores", "logits"):
        expected, found = torch.stack(getattr(plain, name)), torch.stack(getattr(ours, name))
        assert torch.allclose(expected, found, atol=1e-4), name
    transition = model.compute_transition_scores(ours.sequences, ours.scores, normalize_logits=True)
    assert transition.shape == (len(PROMPTS), len(ours.scores))


def test_rows_end_apart_and_are_padded(model: Any, store: Path) -> None:
    plain, _ = both(model)
    token = int(plain[0, -20])  # the first row's own, somewhere in its text
    for options in ({"eos_token_id": token}, {"stopping_criteria": StoppingCriteriaList([EndsWith(token)])}):
        expected, found = both(model, datastore=store, **options)
        assert torch.equal(expected, found)


def test_a_streamer_gets_each_token_and_the_end(model: Any, store: Path) -> None:
    expected, found = Collected(), Collected()
    ids, _ = batch(PROMPTS[:1])
    model.generate(ids, max_new_tokens=NEW, do_sample=False, streamer=expected)
    model.generate(ids, max_new_tokens=NEW, do_sample=False, streamer=found, custom_generate=suffolk.generate)
    assert found.ended
    assert found.values == expected.values
    again = Collected()
    model.generate(ids, max_new_tokens=NEW, do_sample=False, custom_generate=partial(suffolk.generate, streamer=again))
    assert again.ended
    assert again.values == expected.values[1:]  # generate itself gives the prompt


def test_sampled_ids_follow_the_torch_seed_and_the_distribution(model: Any) -> None:
    ids, mask = batch(PROMPTS[1:2])
    options = {"max_new_tokens": 1, "do_sample": True, "temperature": 1.5, "top_k": 4, "num_return_sequences": 1000}
    options |= {"attention_mask": mask, "pad_token_id": 0, "custom_generate": suffolk.generate}
    torch.manual_seed(3)
    first = model.generate(ids, **options)
    torch.manual_seed(3)
    assert torch.equal(first, model.generate(ids, **options))
    with torch.inference_mode():
        logits = model(ids).logits[0, -1] / 1.5
    likely = logits.topk(4)
    chances = torch.softmax(likely.values, 0).tolist()
    counts = torch.bincount(first[:, -1], minlength=VOCAB)
    assert int(counts[likely.indices].sum()) == 1000
    for token, chance in zip(likely.indices.tolist(), chances, strict=True):
        error = 5 * math.sqrt(1000 * chance * (1 - chance)) + 1
        assert abs(int(counts[token]) - 1000 * chance) < error


def test_several_return_sequences_differ(model: Any) -> None:
    torch.manual_seed(1)
    ids, _ = batch(PROMPTS[:1])
    found = model.generate(
        ids, max_new_tokens=12, do_sample=True, top_k=0, num_return_sequences=3, custom_generate=suffolk.generate
    )
    assert found.shape == (3, ids.shape[1] + 12)
    assert len({tuple(row) for row in found.tolist()}) == 3


def test_the_model_is_its_own_again_afterwards(model: Any) -> None:
    model.train()
    attention = model.config._attn_implementation
    ids, _ = batch(PROMPTS[:1])
    model.generate(ids, max_new_tokens=3, do_sample=False, custom_generate=suffolk.generate)
    assert model.training
    assert model.config._attn_implementation == attention
    loss = model(ids, labels=ids).loss
    loss.backward()
    model.zero_grad()
    model.eval()
    assert torch.equal(*both(copy.deepcopy(model), PROMPTS[:1]))


@pytest.mark.parametrize(
    ("options", "kind", "named"),
    [
        ({"num_beams": 2}, Unsupported, "num_beams is 2"),
        ({"return_dict_in_generate": True, "output_attentions": True}, Unsupported, "output_attentions"),
        ({"guidance_scale": 1.5}, Unsupported, "guidance_scale"),
        ({"attention_mask": torch.tensor([[1, 0, 1]])}, InvalidArgument, "padding_side"),
        ({"attention_mask": torch.tensor([[0, 0, 0]])}, InvalidArgument, "padding_side"),
        ({"datastore": "missing/"}, NotFound, "missing"),
        ({"drafter": "psychic"}, InvalidArgument, "psychic"),
        ({"max_nodes": 0}, InvalidArgument, "max_nodes"),
    ],
)
def test_what_cannot_be_done_is_refused(model: Any, options: dict[str, Any], kind: type[Exception], named: str) -> None:
    ids = torch.tensor([PROMPTS[1]])
    with pytest.raises(kind, match=named):
        model.generate(
            ids, max_new_tokens=4, do_sample=False, pad_token_id=0, custom_generate=suffolk.generate, **options
        )
    assert torch.equal(*both(model, PROMPTS[:1]))  # and the next call works


def test_a_datastore_of_a_larger_vocabulary_is_refused(model: Any, tmp_path: Path) -> None:
    make_store(tmp_path / "large", [[[1, 2, 3]]], vocab_size=VOCAB + 1).close()
    with pytest.raises(Unsupported, match="98 token ids"):
        both(model, datastore=tmp_path / "large")


def test_drafts_save_passes(model: Any, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flat = FoundCosts(CostModel([1, 64], [1.0, 1.0]), "flat")
    monkeypatch.setattr(session, "find_costs", lambda target, slots: flat)
    own = copy.deepcopy(model)
    passes = count_passes(own, monkeypatch)
    ids, _ = batch(PROMPTS[:1])
    found = {}
    for name in (None, "hybrid", None, "hybrid"):  # the first calls also check the model
        passes.append(0)
        options = {"datastore": store, "drafter": name, "custom_generate": suffolk.generate}
        own.generate(ids, max_new_tokens=NEW, do_sample=False, **options)
        found[name] = passes[-1]
    assert found[None] == NEW
    assert found["hybrid"] < NEW / 2


def count_passes(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list whose last entry counts the passes of ``model``."""
    passes = [0]
    forward: Callable[..., Any] = model.forward

    def counted(*args: Any, **options: Any) -> Any:
        passes[-1] += 1
        return forward(*args, **options)

    monkeypatch.setattr(model, "forward", counted)
    return passes


def test_text_arrives_through_an_iterator_streamer(model: Any) -> None:
    class Numbers:
        """A tokenizer whose texts are its ids."""

        def decode(self, ids: Any, **options: Any) -> str:
            return "".join(f"{int(each)} " for each in ids)

    ids, _ = batch(PROMPTS[:1])
    streamer = TextIteratorStreamer(Numbers(), skip_prompt=True, timeout=10)  # type: ignore[arg-type]
    found = model.generate(ids, max_new_tokens=9, do_sample=False, streamer=streamer, custom_generate=suffolk.generate)
    assert "".join(streamer).split() == [str(each) for each in found[0, ids.shape[1] :].tolist()]


def test_the_hub_folder_is_a_custom_generate_repository(model: Any, store: Path) -> None:
    ids, mask = batch(PROMPTS[:1])
    streamer = Collected()
    options = {"max_new_tokens": NEW, "do_sample": False, "attention_mask": mask}
    found = model.generate(
        ids, **options, streamer=streamer, custom_generate=str(HUB), trust_remote_code=True, datastore=store
    )
    assert torch.equal(found, model.generate(ids, **options))
    assert streamer.ended
    assert sum(streamer.values, []) == found[0].tolist()


def test_a_batch_beyond_the_slots_is_refused(model: Any) -> None:
    with pytest.raises(InvalidArgument, match="1025 rows"):
        model.generate(torch.ones(1025, 2, dtype=torch.long), max_new_tokens=2, custom_generate=suffolk.generate)
