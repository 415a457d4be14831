"""Tests metadata and deletion end to end, from a corpus to the answers of lookups, by command line and library."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from suffolk.build_index.builder import build
from suffolk.build_index.delete import delete
from suffolk.build_index.options import BuildOptions
from suffolk.cli.main import main
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.documents import DocumentTableWriter
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, ResourceExhausted, Unavailable
from suffolk.datastore.manifest import publish, read_manifest
from suffolk.datastore.open_segment import deletion_metadata
from suffolk.datastore.segment import write_segment
from tests.support.building import make_texts, tokenize, write_jsonl, write_tokenizer
from tests.support.stores import make_store, separated

LICENSES = ["mit", "gpl-3.0", "bsd"]


def write_corpus(path: Path, texts: list[str]) -> Path:
    """Gzipped JSON lines with an id, a license and a repository."""
    records = [
        {"text": text, "id": f"doc-{number}", "license": LICENSES[number % 3], "repo": {"name": f"acme/{number % 2}"}}
        for number, text in enumerate(texts)
    ]
    path.write_bytes(gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode()))
    return path


def run(*arguments: str | Path) -> int:
    return main([str(argument) for argument in arguments])


def test_from_the_corpus_to_the_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = make_texts(30)
    corpus, store = write_corpus(tmp_path / "a.jsonl.gz", texts), tmp_path / "store"
    tokenizer = write_tokenizer(tmp_path)
    fields = ("--id-field", "id", "--metadata", "license,repo.name")
    assert run("build", "--tokenizer", tokenizer, "--output", store, *fields, corpus) == 0
    assert "metadata   license with 30, repo.name with 30 of 30 documents" in capsys.readouterr().out
    whole = ("--max-match", "54", "--ids", *map(str, tokenize(texts[4])[:40]))
    assert run("lookup", store, *whole, "--json") == 0
    (place,) = json.loads(capsys.readouterr().out)["occurrences"]
    assert place["metadata"] == {"license": "gpl-3.0", "repo.name": "acme/0"}
    assert run("lookup", store, *whole) == 0
    assert f"{corpus}#doc-4 (license=gpl-3.0, repo.name=acme/0), token 0" in capsys.readouterr().out

    assert run("delete", store, "--where", "license=gpl-3.0", "--dry-run") == 0
    assert "would delete  10 documents" in capsys.readouterr().out
    assert read_manifest(store).generation == 1
    assert run("delete", store, "--where", "license=gpl-3.0", "--where", "repo.name~acme/0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 5
    assert run("delete", store, "--id", f"{corpus}#doc-0", "--id", f"{corpus}#doc-4", "--id", "nobody") == 0
    shown = capsys.readouterr()
    assert "deleted       1 document," in shown.out
    assert f"no such document: {corpus}#doc-4" in shown.err
    assert "no such document: nobody" in shown.err
    assert run("delete", store, "--id", f"{corpus}#doc-0") == 1
    assert f"no such document: {corpus}#doc-0" in capsys.readouterr().err
    assert run("delete", store, "--where", "license=gpl-3.0", "--where", "repo.name=acme/0") == 1
    assert "nothing was changed" in capsys.readouterr().err
    assert run("lookup", store, *whole, "--min-match", "40", "--json") == 0
    assert json.loads(capsys.readouterr().out)["occurrences"] == []
    assert run("verify", store, "--depth", "full") == 0
    capsys.readouterr()
    assert run("info", store, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    gone = [text for number, text in enumerate(texts) if number % 6 == 4 or number == 0]
    assert (facts["documents"], facts["deleted_documents"], facts["generation"]) == (24, 6, 3)
    assert facts["deleted_tokens"] == sum(len(tokenize(text)) for text in gone)
    names = {entry.name for entry in read_manifest(store).files()}
    assert {path.name for path in (store / "segments").iterdir()} == names
    assert len(names) == 2
    assert not (store / "build").exists()


def test_appending_keeps_deletions_and_replacing_drops_them(tmp_path: Path) -> None:
    texts, store = make_texts(8), tmp_path / "store"
    corpus, tokenizer = write_jsonl(tmp_path / "a.jsonl", texts), write_tokenizer(tmp_path)
    more = write_jsonl(tmp_path / "b.jsonl", texts[:2])
    build(BuildOptions(corpora=(str(corpus),), output=store, tokenizer=tokenizer))
    delete(store, [f"{corpus}:1", f"{corpus}:3"])
    build(BuildOptions(corpora=(str(more),), output=store, mode="append"))
    with open_datastore(store) as opened:
        assert [document.tokens.tolist() for document in opened.documents()] == [
            tokenize(text) for number, text in enumerate(texts + texts[:2]) if number not in (0, 2)
        ]
        assert opened.lookup(tokenize(texts[2]), max_match=30)[0] < 30
        opened.verify("full")
    build(BuildOptions(corpora=(str(corpus),), output=store, tokenizer=tokenizer, mode="replace"))
    assert read_manifest(store).deletions == ()
    with open_datastore(store) as opened:
        assert len(list(opened.documents())) == 8
    assert len(list((store / "segments").iterdir())) == 1


def test_a_store_may_lose_all_its_documents(tmp_path: Path) -> None:
    make_store(tmp_path / "store", [[[1, 2], []], [[1, 2, 3]]], vocab_size=9)
    assert delete(tmp_path / "store", where=["source~*"]).left_documents == 0
    with open_datastore(tmp_path / "store") as store:
        assert store.lookup([1, 2]) == (0, 0)
        assert len(store.draft([1])) == 0
        assert store.occurrences([1, 2]) == []
        assert list(store.documents()) == []
        assert store.info()["tokens"] == store.info()["bytes_per_token"] == 0


def test_a_reader_keeps_what_was_not_deleted_when_it_opened(tmp_path: Path) -> None:
    before = make_store(tmp_path / "store", [[[1, 2, 3], [1, 2, 4], [1, 2, 5]]], vocab_size=9)
    delete(tmp_path / "store", ["segment 0 document 0"])
    between = open_datastore(tmp_path / "store")
    delete(tmp_path / "store", ["segment 0 document 1"])
    assert [store.lookup([1, 2]).count for store in (before, between)] == [3, 2]
    assert {place.document for place in between.occurrences([1, 2])} == {1, 2}
    with open_datastore(tmp_path / "store") as after:
        assert after.lookup([1, 2]) == (2, 1)


def test_a_full_disk_leaves_the_old_generation(tmp_path: Path) -> None:
    store = tmp_path / "store"
    make_store(store, [[[1, 2, 3], [1, 2, 4]]], vocab_size=9).close()
    (store / "MANIFEST.tmp").mkdir()  # makes the write fail, like a full disk
    with pytest.raises(ResourceExhausted, match="MANIFEST cannot be written"):
        delete(store, ["segment 0 document 0"])
    assert not (store / "build").exists()
    assert len(list((store / "segments").iterdir())) == 1
    with open_datastore(store) as opened:
        assert opened.lookup([1, 2]) == (2, 2)


def test_an_interrupted_build_is_not_taken_for_done(tmp_path: Path) -> None:
    """A deletion would publish the generation number of the interrupted build. The resumed build would then take that generation
    for its own, and end as complete."""
    store = tmp_path / "store"
    make_store(store, [[[1, 2, 3]]], vocab_size=9).close()
    (store / "build/segments").mkdir(parents=True)
    (store / "build/journal.jsonl").write_text('{"settings": {"generation": 2}}\n{"entry": {}}\n')
    (store / "build/segments/g000002-00000.segment").write_bytes(b"sorted")
    with pytest.raises(Unavailable, match="holds an interrupted build; finish it"):
        delete(store, ["segment 0 document 0"])
    assert (store / "build/segments/g000002-00000.segment").read_bytes() == b"sorted"
    (store / "build/journal.jsonl").unlink()  # the state after a killed deletion
    assert delete(store, ["segment 0 document 0"]).documents == 1


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (("000000.seg", 5), "document 5 of 000000.seg, which does not exist"),
        (("other.seg", 0), "document 0 of other.seg, which does not exist"),
        (("000000.seg", "x"), "names document 'x' of segment '000000.seg'"),
        (("000000.seg", 1), "deletes document 1 of 000000.seg, and its document 0 has other tokens"),
    ],
)
def test_deletion_segments_that_lie_are_found(tmp_path: Path, place: tuple[str, int], message: str) -> None:
    store = tmp_path / "store"
    make_store(store, [[[1, 2, 3], [1, 2, 4]]], vocab_size=9).close()
    table = DocumentTableWriter()
    table.add("lie", deletion_metadata(*place))
    entry = write_segment(store / "segments/lie.seg", separated([[1, 2, 3]], 9), vocab_size=9, documents=table.finish())
    publish(store, replace(read_manifest(store), deletions=(entry,)))
    with open_datastore(store) as opened, pytest.raises(Corruption, match=message):
        opened.verify("full")


def test_what_cannot_be_deleted_says_why(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is no datastore"):
        delete(tmp_path / "nothing", ["a"])
    assert not (tmp_path / "nothing").exists()
    make_store(tmp_path / "store", [[[1]]], vocab_size=9).close()
    with pytest.raises(InvalidArgument, match="neither ids nor conditions"):
        delete(tmp_path / "store")


def test_nothing_is_deleted_from_damaged_files(tmp_path: Path) -> None:
    """A deletion from damaged files fails.

    With damaged document starts, searches would subtract the tokens of other documents.
    """
    make_store(tmp_path / "store", [[[1, 2, 3], [4, 5]]], vocab_size=9).close()
    segment = tmp_path / "store/segments/000000.seg"
    content = bytearray(segment.read_bytes())
    content[256] ^= 1  # the first token
    segment.with_suffix(".new").write_bytes(content)
    segment.with_suffix(".new").replace(segment)
    with pytest.raises(Corruption, match=r"000000\.seg"):
        delete(tmp_path / "store", ids=["segment 0 document 0"])
    assert read_manifest(tmp_path / "store").generation == 1


@pytest.mark.parametrize("condition", ["licence!=mit", "licence=mit", "stars>=6"])
def test_a_field_that_no_document_has_is_refused(tmp_path: Path, condition: str) -> None:
    """Regression: a condition with != and a misspelt field used to select all documents."""
    origins = [[("a", {"license": "mit", "stars": 6}), ("b", {"license": "gpl"})]]
    make_store(tmp_path / "store", [[[1, 2], [3]]], vocab_size=9, origins=origins).close()
    with pytest.raises(InvalidArgument, match="the fields are license, source, stars"):
        delete(tmp_path / "store", where=[condition])


def test_ids_that_exist_but_are_not_meant_are_not_called_unknown(tmp_path: Path) -> None:
    origins = [[("a", {"license": "mit"}), ("b", {"license": "gpl"})]]
    make_store(tmp_path / "store", [[[1, 2], [3]]], vocab_size=9, origins=origins).close()
    report = delete(tmp_path / "store", ids=["a", "b", "c"], where=["license=gpl"])
    assert (report.documents, report.unknown_ids) == (1, ("c",))
