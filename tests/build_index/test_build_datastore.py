"""Tests whole builds, by the library and the command line. The published datastore is read back."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zstandard

from suffolk.build_index.builder import build, plan_build
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.progress import WorkProgress
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, Unsupported
from suffolk.datastore.manifest import read_manifest, writer_lock
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from tests.support.building import (
    ROOT,
    VOCAB_SIZE,
    command,
    make_texts,
    read_documents,
    segment_bytes,
    tokenize,
    write_jsonl,
    write_tokenizer,
)
from tests.support.forked import suffolk


def test_a_segment_has_the_same_name_in_two_datastores_only_if_its_bytes_are_equal(tmp_path: Path) -> None:
    def built(name: str, texts: list[str]) -> dict[str, bytes]:
        corpus = str(write_jsonl(tmp_path / "texts.jsonl", texts))
        build(BuildOptions((corpus,), tmp_path / name, tokenizer=write_tokenizer(tmp_path)))
        return segment_bytes(tmp_path / name)

    texts = make_texts(4)
    first = built("first", texts)
    assert built("again", texts) == first
    assert not set(built("other", texts[1:])) & set(first)


def test_mixed_inputs_come_back_in_order_with_their_sources(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow
    from pyarrow import parquet

    texts = make_texts(60)
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(10):
        (tree / f"{number}.py").write_text(texts[number])
    plain = write_jsonl(tmp_path / "a.jsonl", texts[10:20])
    zipped = tmp_path / "b.jsonl.gz"
    zipped.write_bytes(gzip.compress(write_jsonl(tmp_path / "x.jsonl", texts[20:30]).read_bytes()))
    packed = tmp_path / "c.jsonl.zst"
    packed.write_bytes(zstandard.compress(write_jsonl(tmp_path / "x.jsonl", texts[30:40]).read_bytes()))
    table = tmp_path / "d.parquet"
    parquet.write_table(pyarrow.table({"id": [f"row-{n}" for n in range(10)], "text": texts[40:50]}), table)
    ids = [tokenize(text) for text in texts[50:60]]
    flat = [token for document in ids for token in (*document, 0)]
    np.save(tmp_path / "e.npy", np.array(flat[: len(flat) // 2]))
    np.array(flat[len(flat) // 2 :], "<u2").tofile(tmp_path / "f.bin")
    store = tmp_path / "store"
    report = build(
        BuildOptions(
            corpora=tuple(map(str, (tree, plain, zipped, packed, table, tmp_path / "e.npy", tmp_path / "f.bin"))),
            output=store,
            tokenizer=write_tokenizer(tmp_path),
            id_field="id",
            end_of_document=0,
            segment_tokens=1000,
        )
    )
    found = read_documents(store)
    assert [token for _, document in found for token in document] == [
        token for text in texts for token in tokenize(text)
    ]
    assert [document for _, document in found[:50]] == [tokenize(text) for text in texts[:50]]
    sources = [source for source, _ in found]
    assert sources[3] == f"{tree}/3.py"
    assert sources[12] == f"{plain}#doc-2"
    assert sources[25] == f"{zipped}#doc-5"
    assert sources[49] == f"{table}#row-9"
    assert sources[50] == f"{tmp_path}/e.npy@0"
    assert report.tokens == sum(len(document) for _, document in found)
    assert report.documents == len(found)
    assert report.segments == len(read_manifest(store).segments) > 1
    with open_datastore(store) as datastore:
        datastore.verify("full")
        assert datastore.lookup(tokenize(texts[33])[:12]).length == 12
    with open_datastore(store) as datastore:
        assert fingerprint(load_tokenizer(datastore.tokenizer_path())) == read_manifest(store).tokenizer
    assert not (store / "build").exists()


def test_parquet_input_ids_need_no_tokenizer(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [[5, 6, 7], [], [8], [9, 10]]
    parquet.write_table(pyarrow.table({"input_ids": rows, "text": ["t"] * 4}), tmp_path / "a.parquet")
    build(BuildOptions(corpora=(str(tmp_path / "a.parquet"),), output=tmp_path / "store", vocab_size=20))
    path = tmp_path / "a.parquet"
    assert read_documents(tmp_path / "store") == [(f"{path}:1", [5, 6, 7]), (f"{path}:3", [8]), (f"{path}:4", [9, 10])]
    assert read_manifest(tmp_path / "store").tokenizer is None


def test_the_bytes_do_not_depend_on_processes_or_on_the_path_taken(tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "a.jsonl", make_texts(9000, words=150))
    assert corpus.stat().st_size > 5_000_000
    seen = []
    for name, more in (
        ("two", {"threads": 2}),
        ("one", {"threads": 1}),
        ("exact", {"threads": 2, "tokenization": "exact"}),
    ):
        options = BuildOptions(
            corpora=(str(corpus),),
            output=tmp_path / name,
            tokenizer=write_tokenizer(tmp_path),
            segment_tokens=900_000,
            **more,
        )
        report = build(options)
        assert report.fast == (name != "exact")
        seen.append(segment_bytes(tmp_path / name))
    assert len(seen[0]) > 1
    assert seen[0] == seen[1] == seen[2]


def test_append_replace_and_refuse(tmp_path: Path) -> None:
    first = write_jsonl(tmp_path / "a.jsonl", make_texts(5))
    second = write_jsonl(tmp_path / "b.jsonl", make_texts(5, seed=2))
    store, tokenizer = tmp_path / "store", write_tokenizer(tmp_path)
    build(BuildOptions(corpora=(str(first),), output=store, tokenizer=tokenizer))
    with pytest.raises(
        InvalidArgument, match=r"holds a datastore already \(generation 1\); give --append .* --replace"
    ):
        build(BuildOptions(corpora=(str(second),), output=store, tokenizer=tokenizer))
    build(BuildOptions(corpora=(str(second),), output=store, mode="append"))
    assert [ids for _, ids in read_documents(store)] == [tokenize(t) for t in make_texts(5) + make_texts(5, seed=2)]
    reader = open_datastore(store)
    build(BuildOptions(corpora=(str(second),), output=store, tokenizer=tokenizer, mode="replace"))
    assert [ids for _, ids in read_documents(store)] == [tokenize(text) for text in make_texts(5, seed=2)]
    assert read_manifest(store).generation == 3
    assert len(list((store / "segments").iterdir())) == 1
    assert len(list(reader.documents())) == 10
    reader.close()


class Notes(WorkProgress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


def test_files_that_are_added_again_are_noted(tmp_path: Path) -> None:
    """Regression: a repeated append doubled the documents without a word."""
    corpus = write_jsonl(tmp_path / "a.jsonl", make_texts(5))
    options = BuildOptions(
        corpora=(str(corpus),), output=tmp_path / "store", tokenizer=write_tokenizer(tmp_path), mode="new"
    )
    build(options)
    again, changed = Notes(), Notes()
    build(replace(options, mode="append"), again)
    assert "added these files already" in "\n".join(again.texts)
    write_jsonl(corpus, make_texts(6))
    build(replace(options, mode="append"), changed)
    assert "added these files already" not in "\n".join(changed.texts)


class Unread(WorkProgress):
    """Ends a build that reads its inputs."""

    def advance(self, work: str, share: float, facts: str = "") -> None:
        raise AssertionError(work)


@pytest.mark.parametrize("size", [None, 1000])
def test_nothing_is_read_to_append_to_a_damaged_datastore(tmp_path: Path, size: int | None) -> None:
    corpus = str(write_jsonl(tmp_path / "a.jsonl", make_texts(9)))
    build(BuildOptions(corpora=(corpus,), output=tmp_path / "store", tokenizer=write_tokenizer(tmp_path)))
    [segment] = (tmp_path / "store" / "segments").iterdir()
    if size is None:
        segment.unlink()
    else:
        os.truncate(segment, size)
    with pytest.raises(Corruption, match=segment.name):
        build(BuildOptions(corpora=(corpus,), output=tmp_path / "store", mode="append"), Unread())
    assert not (tmp_path / "store" / "build").exists()


def test_what_does_not_fit_the_datastore_is_refused(tmp_path: Path) -> None:
    corpus = str(write_jsonl(tmp_path / "a.jsonl", make_texts(5)))
    store, tokenizer = tmp_path / "store", write_tokenizer(tmp_path)
    with pytest.raises(NotFound, match="no datastore to append to; leave --append out"):
        build(BuildOptions(corpora=(corpus,), output=store, mode="append", tokenizer=tokenizer))
    assert not store.exists()
    build(BuildOptions(corpora=(corpus,), output=store, tokenizer=tokenizer))
    other = load_tokenizer(tokenizer)
    other.add_tokens(["<other>"])
    other.save(str(tmp_path / "other.json"))
    with pytest.raises(Unsupported, match=r"other.json: not the one of .* \(fingerprint .*\); leave --tokenizer out"):
        build(BuildOptions(corpora=(corpus,), output=store, mode="append", tokenizer=str(tmp_path / "other.json")))
    with pytest.raises(Unsupported, match="order depth: 32 differs from the 64"):
        build(BuildOptions(corpora=(corpus,), output=store, mode="append", order_depth=32))
    with writer_lock(store), pytest.raises(Exception, match="another process is writing"):
        build(BuildOptions(corpora=(corpus,), output=store, mode="append"))
    assert read_manifest(store).generation == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.txt", None, "gone.txt: no such file or folder; check the name"),
        ("empty.txt", b"", "nothing to read (1 empty); name files that hold text"),
        ("blank.jsonl", b"\n\n", "holds no tokens"),
        ("cut.jsonl.zst", zstandard.compress(b'{"text": "x"}\n' * 9)[:-3], "cut.jsonl.zst: broken zstandard stream"),
        (
            "no.jsonl",
            b'{"body": "x"}\n',
            "no.jsonl:1: no field 'text'; the record has body; name the text field with --text-field",
        ),
        ("bad.npy", b"no array", "bad.npy: not a whole .npy file"),
        ("high.bin", np.array([1, 600], "<u2").tobytes(), f"id 600 at position 1 is not in 0..{VOCAB_SIZE - 1}"),
        ("data.exe", b"MZ\0\0", "data.exe: binary, which is not read; name text, JSON lines"),
        ("bad.parquet", b"PAR1 or not", "bad.parquet: damaged Parquet file"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    store = tmp_path / "new" / "store"
    done = suffolk("build", "--tokenizer", write_tokenizer(tmp_path), "--output", store, tmp_path / name)
    assert done.returncode == 2
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("suffolk: ")
    assert message in last
    assert "Traceback" not in done.stderr
    assert not store.parent.exists()


def test_invalid_utf8_is_counted_and_not_fatal(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"good \xff bad")
    report = build(
        BuildOptions(corpora=(str(tmp_path / "a.txt"),), output=tmp_path / "s", tokenizer=write_tokenizer(tmp_path))
    )
    assert report.replaced_invalid == 1
    assert [ids for _, ids in read_documents(tmp_path / "s")] == [tokenize("good \ufffd bad")]


def test_quiet_in_pipes_with_a_summary_and_json(tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "a.jsonl", make_texts(50))
    tokenizer = write_tokenizer(tmp_path)
    planned = suffolk("build", "--tokenizer", tokenizer, "--output", tmp_path / "s", "--plan", "--json", corpus)
    assert planned.returncode == 0
    plan = json.loads(planned.stdout)
    assert not (tmp_path / "s").exists()
    done = suffolk("build", "--tokenizer", tokenizer, "--output", tmp_path / "s", "--json", corpus)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(done.stderr.splitlines()) == 2
    assert "\x1b" not in done.stderr + done.stdout
    assert report["documents"] == 50
    assert abs(plan["tokens"] - report["tokens"]) < 0.2 * report["tokens"]
    for name in ("peak_memory_bytes", "text_bytes_per_second", "tokens_per_second"):
        assert report[name] > 0
    words = suffolk("build", "--tokenizer", tokenizer, "--output", tmp_path / "t", corpus).stdout
    assert "equal ids for all 50 sampled documents" in words
    assert "MB/s" in words


def test_the_plan_writes_nothing_and_names_what_it_takes(tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "a.jsonl", make_texts(50))
    plan = plan_build(BuildOptions(corpora=(str(corpus),), output=tmp_path / "s", tokenizer=write_tokenizer(tmp_path)))
    text = "\n".join(plan.lines())
    for word in ("tokens", "time", "memory", "disk", "free", "fast path"):
        assert word in text
    assert not (tmp_path / "s").exists()


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare to mount a small disk")
def test_a_full_disk_is_said_in_one_line(tmp_path: Path) -> None:
    """A build on a disk that is too small fails with one line.

    It fails by the estimate, or, if there is no estimate, when it writes.
    """
    corpus = write_jsonl(tmp_path / "a.jsonl", make_texts(3000))
    disk = tmp_path / "disk"
    disk.mkdir()
    build_it = command("build", "--tokenizer", write_tokenizer(tmp_path), "--output", disk / "s", corpus)
    hog = f"head -c 3600000 /dev/zero > {disk}/hog; "
    for size, before, message in (("1m", "", "MB are free"), ("4m", hog, "MB are free")):
        script = f'mount -t tmpfs -o size={size} tmpfs {disk} && {before} exec "$@"'
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", script, "sh", *build_it],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
            check=False,
        )
        if "unshare" in done.stderr or "mount:" in done.stderr:
            pytest.skip("this system lets no one mount")
        assert done.returncode == 2, done.stderr
        assert message in done.stderr.splitlines()[-1]


def test_a_disk_that_fills_during_the_build_is_said_in_one_line(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare to mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "b.bin").write_bytes(np.arange(400_000, dtype="<u2").tobytes())
    program = (
        "import sys; from pathlib import Path; import numpy as np; from suffolk.build_index.token_file import TokenFile\n"
        "from suffolk.datastore.errors import ResourceExhausted\n"
        f"path = Path({str(disk / 'tokens')!r})\n"
        "try:\n"
        "    with TokenFile(path, np.dtype(np.uint16)) as file:\n"
        "        for _ in range(100): file.append(np.zeros(100_000, np.uint16))\n"
        "except ResourceExhausted as error:\n"
        "    print(error); sys.exit(2 if not path.exists() else 3)\n"
    )
    script = f'mount -t tmpfs -o size=1m tmpfs {disk} && exec "$@"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", sys.executable, "-c", program],
        capture_output=True, text=True, timeout=60, cwd=ROOT, check=False, env={**os.environ},
    )  # fmt: skip
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("this system lets no one mount")
    assert done.returncode == 2, done.stderr
    assert "tokens: the disk is full; free some space and run the command again" in done.stdout
