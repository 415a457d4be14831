"""A live index answers like the brute-force oracle, whatever was appended, removed, flushed and dropped."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_retrieval import VOCAB_SIZES
from tests.support.examples import examples
from tests.support.live_model import LiveModel, Text

GROUPS = 3


@pytest.mark.parametrize("width", [2, 3])
@given(data=st.data())
@examples(40)
def test_answers_equal_the_oracle(width: int, data: st.DataObject) -> None:
    top = VOCAB_SIZES[width] - 1
    with tempfile.TemporaryDirectory() as folder:
        model = LiveModel(Path(folder), top + 1)
        for _ in range(data.draw(st.integers(1, 14), label="steps")):
            change(model, data, top)
        model.check_documents()
        for _ in range(3):
            model.check(*query(data, top))
        model.index.settle()
        model.check_documents()
        model.check(*query(data, top))
        model.index.close()


def change(model: LiveModel, data: st.DataObject, top: int) -> None:
    """One change of the index. Numbers of documents are drawn from those in memory."""
    numbers = sorted(model.memory)
    some = st.lists(st.sampled_from(numbers), unique=True, max_size=4) if numbers else st.just([])
    kinds = ["append"] * 4 + ["remove", "replace", "flush", "drop", "delete"]
    kind = data.draw(st.sampled_from(kinds), label="kind")
    if kind in ("append", "replace"):
        model.append(data.draw(texts(top)), data.draw(some) if kind == "replace" else [])
    elif kind == "remove":
        model.remove(data.draw(some))
    elif kind == "flush" and len(model.files) < 3:
        model.flush(data.draw(st.sampled_from([0, *numbers])))
    elif kind == "drop":
        model.drop_before(data.draw(st.sampled_from([0, *numbers])))
    elif kind == "delete" and model.files:
        file = data.draw(st.integers(0, len(model.files) - 1))
        places = st.integers(0, len(model.files[file][0]) - 1)
        model.delete_in_file(file, data.draw(st.lists(places, max_size=3)))


@st.composite
def texts(draw: st.DrawFn, top: int) -> list[Text]:
    """Documents of few ids at the top of the vocabulary; repeats fill more than one stride of the directory."""
    tokens = st.lists(st.integers(top - 2, top), min_size=1, max_size=12)
    repeats = st.sampled_from([1, 1, 1, 20])
    text = st.builds(
        lambda ids, times, group, origin, time: Text(tuple(ids * times), group, origin, time),
        tokens,
        repeats,
        st.integers(0, GROUPS),
        st.binary(max_size=3),
        st.integers(-5, 5),
    )
    return draw(st.lists(text, min_size=1, max_size=4))


def query(data: st.DataObject, top: int) -> tuple[list[int], dict[str, int], int]:
    context = data.draw(st.lists(st.integers(top - 2, top), max_size=12), label="context")
    min_match = data.draw(st.integers(1, 2))
    bounds = {
        "max_match": data.draw(st.integers(min_match, 12)),
        "min_match": min_match,
        "max_depth": data.draw(st.integers(1, 6)),
        "max_nodes": data.draw(st.integers(0, 30)),
    }
    return context, bounds, data.draw(st.integers(1, GROUPS), label="group")
