"""A datastore with deletions answers like one that was built without the deleted documents."""

from __future__ import annotations

import tempfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffolk.build_index.delete import delete
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import InvalidArgument
from tests.support.examples import examples
from tests.support.stores import make_store


class Known(NamedTuple):
    source: str
    metadata: dict[str, Any]
    tokens: list[int]


Segments = list[list[Known]]
Deletion = tuple[list[str], list[tuple[str, str, str]]]

SOURCES = st.sampled_from(["a/1.py", "a/2.py", "b/1.py", "c#7"])
METADATA = st.fixed_dictionaries(
    {}, optional={"license": st.sampled_from(["mit", "gpl-3.0"]), "stars": st.integers(0, 2), "fork": st.booleans()}
)
DOCUMENTS = st.builds(Known, SOURCES, METADATA, st.lists(st.integers(0, 3), max_size=12))
SEGMENTS = st.lists(st.lists(DOCUMENTS, min_size=1, max_size=8), min_size=1, max_size=4)
CONDITIONS = st.sampled_from(
    [
        ("license", "=", "mit"),
        ("license", "!=", "gpl-3.0"),
        ("license", "~", "gpl*"),
        ("stars", "=", "2"),
        ("fork", "=", "true"),
        ("fork", "!=", "false"),
        ("source", "~", "a/*"),
        ("source", "!=", "c#7"),
        ("nothing", "=", "x"),
    ]
)
DELETIONS: st.SearchStrategy[Deletion] = st.tuples(
    st.lists(SOURCES, max_size=2), st.lists(CONDITIONS, max_size=2)
).filter(lambda deletion: any(deletion))
WRITTEN = {True: "true", False: "false"}


def is_meant(document: Known, deletion: Deletion) -> bool:
    """An independent implementation of ``suffolk.datastore.query``."""
    ids, conditions = deletion
    answers = [document.source in ids] if ids else []
    for field, operator, operand in conditions:
        value = {"source": document.source, **document.metadata}.get(field)
        text = WRITTEN[value] if isinstance(value, bool) else str(value)
        if operator == "!=":
            answers.append(value is None or text != operand)
        else:
            answers.append(value is not None and (text == operand if operator == "=" else fnmatchcase(text, operand)))
    return all(answers)


def make(path: Path, segments: Segments) -> Datastore:
    tokens = [[document.tokens for document in segment] for segment in segments]
    origins = [[(document.source, document.metadata) for document in segment] for segment in segments]
    return make_store(path, tokens, vocab_size=5, origins=origins)


def answers(store: Datastore, contexts: list[list[int]]) -> list[Any]:
    """Return all answers of a datastore, in a form that does not depend on its segments."""
    observed: list[Any] = [(found.source, found.metadata, found.tokens.tolist()) for found in store.documents()]
    observed += [store.info()["tokens"], store.info()["documents"]]
    for context in contexts:
        tree = store.draft(context, max_match=8, max_depth=6, max_nodes=32)
        assert tree.counts is not None
        columns = (
            tree.tokens.tolist(),
            tree.parents.tolist(),
            tree.counts.tolist(),
            tree.match_length,
            tree.match_count,
        )
        observed.append((store.lookup(context, max_match=8), columns))
        found = store.occurrences(context, limit=1000, context=3)
        observed.append(
            sorted(
                (place.source, place.offset, place.tokens.tolist(), sorted(place.metadata.items())) for place in found
            )
        )
    return observed


@examples(60)
@given(
    SEGMENTS,
    st.lists(DELETIONS, min_size=1, max_size=4),
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), max_size=5),
)
def test_deleting_is_building_without(segments: Segments, deletions: list[Deletion], contexts: list[list[int]]) -> None:
    contexts += [[0], [1], [0, 1]]
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "store", segments).close()
        live, generation = segments, 1
        for number, deletion in enumerate(deletions):
            known = {"source"}.union(*(document.metadata for segment in live for document in segment))
            if not {field for field, _, _ in deletion[1]} <= known:
                with pytest.raises(InvalidArgument, match="no document has the field"):
                    delete(Path(folder) / "store", deletion[0], ["".join(condition) for condition in deletion[1]])
                continue
            gone = [document for segment in live for document in segment if is_meant(document, deletion)]
            live = [[document for document in segment if not is_meant(document, deletion)] for segment in live]
            generation += bool(gone)
            ids, conditions = deletion
            report = delete(Path(folder) / "store", ids, ["".join(condition) for condition in conditions], threads=1)
            assert (report.documents, report.tokens) == (len(gone), sum(len(document.tokens) for document in gone))
            assert report.generation == generation
            with open_datastore(Path(folder) / "store") as store:
                store.verify("full")
                assert len(store.manifest.deletions) <= 1
                observed = answers(store, contexts)
            if left := [segment for segment in live if segment]:
                with make(Path(folder) / f"fresh-{number}", left) as fresh:
                    assert observed == answers(fresh, contexts)
            else:
                assert observed == [0, 0] + [((0, 0), ([], [], [], 0, 0)), []] * len(contexts)
