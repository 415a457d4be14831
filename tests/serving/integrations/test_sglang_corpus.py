"""Tests the corpus for SGLang: its layout, life cycle and faults. SGLang itself cannot be installed without CUDA packages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.integrations.core import DraftCore, FinishedText
from suffolk.serving.integrations.options import IntegrationOptions
from suffolk.serving.integrations.sglang import plugin
from suffolk.serving.integrations.sglang.plugin import DatastoreCorpus
from tests.support.draft_server import serving
from tests.support.stores import make_store

VOCAB = 100
WIDTH = 8
TEXTS = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [1, 2, 3, 44, 55, 66, 77, 88], [20, 21, 22, 23, 24]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores") / "texts"
    make_store(folder, [TEXTS], vocab_size=VOCAB).close()
    return folder


@pytest.fixture
def corpus(store: Path) -> Iterator[DatastoreCorpus]:
    made = DatastoreCorpus(DraftCore(IntegrationOptions(datastores=(str(store),)), VOCAB, "model"), WIDTH)
    yield made
    made.close()


def get(corpus: DatastoreCorpus, **texts: list[int]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Tokens [width] and mask [width, width] of each request, from the flat answer."""
    tokens, masks = corpus.batch_get(list(texts), list(texts.values()), [len(each) for each in texts.values()])
    assert tokens.dtype == masks.dtype == np.int64
    assert tokens.shape == (len(texts) * WIDTH,)
    assert masks.shape == (len(texts) * WIDTH * WIDTH,)
    rows = tokens.reshape(-1, WIDTH), masks.reshape(-1, WIDTH, WIDTH)
    return dict(zip(texts, zip(*rows, strict=True), strict=True))


def paths(tokens: np.ndarray, mask: np.ndarray) -> set[tuple[int, ...]]:
    """The tokens on the path to each node, as SGLang reads them.

    SGLang takes as a node's parent the last node before it that it sees.
    """
    return {tuple(int(tokens[at]) for at in np.flatnonzero(row)[1:]) for row in mask}


def test_a_tree_has_all_continuations(corpus: DatastoreCorpus) -> None:
    found = get(corpus, one=[1, 2, 3], two=[50, 20, 21])
    tokens, mask = found["one"]
    assert tokens[0] == 3
    assert {(4,), (4, 5), (44,), (44, 55)} <= paths(tokens, mask)
    assert {(22,), (22, 23), (22, 23, 24)} <= paths(*found["two"])


def test_the_layout_is_that_of_sglang(corpus: DatastoreCorpus) -> None:
    """Nodes see themselves, their ancestors and node 0. Unused places after the tree hold token 0, as children of node 0."""
    for _, mask in get(corpus, full=[1, 2, 3], short=[50, 20, 21], none=[70, 71]).values():
        assert (np.diagonal(mask) == 1).all()
        assert (mask[:, 0] == 1).all()
        assert (np.triu(mask, 1) == 0).all()
        for node in range(1, WIDTH):
            ancestors = np.flatnonzero(mask[node, :node])
            assert set(ancestors) == set(np.flatnonzero(mask[ancestors[-1]])), "a node sees what its parent sees"
    tokens, mask = get(corpus, none=[70, 71])["none"]
    assert tokens.tolist() == [71] + [0] * (WIDTH - 1)
    assert mask[1:, 1:].tolist() == np.eye(WIDTH - 1, dtype=int).tolist()


def test_tails_of_long_texts_suffice(corpus: DatastoreCorpus) -> None:
    tokens, masks = corpus.batch_get(["a"], [[1, 2, 3]], [5000])
    first = paths(tokens, masks.reshape(WIDTH, WIDTH))
    assert (4, 5) in first
    tokens, masks = corpus.batch_get(["a"], [[3, 4, 5]], [5002])  # two tokens on
    assert (6, 7, 8) in paths(tokens, masks.reshape(WIDTH, WIDTH))
    assert corpus.stats()["failed"] == 0


def test_texts_that_end_are_handed_over(store: Path) -> None:
    ended: list[FinishedText] = []
    core = DraftCore(IntegrationOptions(datastores=(str(store),)), VOCAB, "model", on_finish=ended.append)
    corpus = DatastoreCorpus(core, WIDTH)
    get(corpus, a=[1, 2, 3], b=[20, 21])
    get(corpus, a=[1, 2, 3, 4, 5], b=[20, 21, 22])
    corpus.batch_put([[4, 5], [21, 22]])
    corpus.erase_match_state(["a", "unknown"])
    assert [(each.key, each.tokens.tolist()) for each in ended] == [("a", [1, 2, 3, 4, 5])]
    corpus.reset()
    assert [each.key for each in ended] == ["a", "b"]
    corpus.close()


def test_a_dead_service_gives_trees_without_nodes(store: Path) -> None:
    with open_datastore(store) as opened, serving({"texts": opened}) as server:
        url = f"grpc://{server.listening[0]}/texts?deadline_ms=2000"
        options = IntegrationOptions(datastores=(url,), prompt_lookup=False)
        corpus = DatastoreCorpus(DraftCore(options, VOCAB, "model"), WIDTH)
        assert (4, 5) in paths(*get(corpus, a=[1, 2, 3])["a"])
    tokens, _ = get(corpus, b=[1, 2, 3])["b"]
    assert tokens.tolist() == [3] + [0] * (WIDTH - 1)
    assert corpus.stats()["failed"] > 0
    corpus.close()


def test_a_corpus_of_sglang_is_refused(corpus: DatastoreCorpus) -> None:
    with pytest.raises(Unsupported, match="suffolk build"):
        corpus.load_external_corpus_named("wiki", [[1, 2]])
    with pytest.raises(Unsupported, match="suffolk delete"):
        corpus.remove_external_corpus("wiki")
    assert corpus.list_external_corpora() == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"stores": []}', '{"max_match": 0}', '{"datastores": 3}'])
def test_bad_options_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        plugin.options_of(text)


def test_options_are_read(store: Path) -> None:
    found = plugin.options_of(json.dumps({"datastores": [str(store)], "max_depth": 12}))
    assert (found.datastores, found.max_depth) == ((str(store),), 12)


def test_several_ranks_are_refused() -> None:
    with pytest.raises(Unsupported, match="tp_size is 2"):
        plugin.make_core(IntegrationOptions(), VOCAB, "model", "model", 2)


def test_without_the_variable_the_plugin_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(plugin.VARIABLE, raising=False)
    plugin.register()


def test_another_version_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "{}")
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.6.0")
    with pytest.raises(Unsupported, match=r"sglang 0\.6\.0 .* 0\.5\.23"):
        plugin.register()
