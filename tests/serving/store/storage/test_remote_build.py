"""Builds whose corpora or outputs are in storage."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zstandard

from suffolk.build_index.builder import build
from suffolk.build_index.inputs import find_inputs
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.progress import WorkProgress
from suffolk.datastore.errors import InvalidArgument, NotFound, Unavailable, Unsupported
from suffolk.datastore.manifest import read_manifest
from suffolk.datastore.remote_files import find_files
from suffolk.serving.store.storage.build import build_at
from suffolk.serving.store.storage.pull import pull
from suffolk.serving.store.storage.push import push
from tests.support.building import make_texts, read_documents, write_jsonl, write_tokenizer
from tests.support.copies import require_equal, require_whole
from tests.support.forked import suffolk
from tests.support.s3_server import S3Server

SILENT = WorkProgress()


@pytest.fixture
def corpus(tmp_path: Path, url: str) -> str:
    """A folder in a bucket with each kind of file; the same files are in ``tmp_path/local``."""
    import pyarrow
    from pyarrow import parquet

    local = tmp_path / "local"
    (local / "deep").mkdir(parents=True)
    texts = make_texts(30)
    lines = write_jsonl(tmp_path / "lines.jsonl", texts[:10]).read_bytes()
    (local / "a.jsonl.zst").write_bytes(zstandard.compress(lines))
    (local / "b.jsonl.gz").write_bytes(gzip.compress(lines))
    (local / "deep" / "c.jsonl").write_bytes(lines)
    (local / "d.py").write_text("\n".join(texts * 60))  # more than a block
    (local / ".hidden.txt").write_text("not read")
    (local / "empty.jsonl").touch()  # S3 refuses parts of it
    parquet.write_table(pyarrow.table({"text": texts[20:]}), local / "e.parquet")
    np.save(local / "f.npy", np.arange(5))
    fsspec.filesystem("s3").put(str(local), url.removeprefix("s3://").rpartition("/")[0] + "/corpus", recursive=True)
    return url.rpartition("/")[0] + "/corpus"


def documents(folder: Path, corpora: list[str], name: str) -> list[tuple[str | None, list[int]]]:
    build(BuildOptions(tuple(corpora), folder / name, tokenizer=write_tokenizer(folder)))
    return read_documents(folder / name)


def test_a_listed_name_with_two_slashes_is_read(tmp_path: Path, s3: S3Server, url: str) -> None:
    odd = f"{url}/deep//a.jsonl"
    fsspec.filesystem("s3").pipe_file(odd, write_jsonl(tmp_path / "a.jsonl", ["two words"]).read_bytes())
    assert [source for source, _ in documents(tmp_path, [url], "store")] == [f"{odd}:1"]


def test_a_folder_without_a_name_is_read_through_the_one_above(s3: S3Server, url: str) -> None:
    """Regression: the error named another folder, which may not exist."""
    fsspec.filesystem("s3").pipe_file(f"{url}//log/a.txt", b"abc")
    for corpus in (f"{url}//log", f"{url}//log/a.txt", f"{url}//log/*.txt"):
        with pytest.raises(
            InvalidArgument, match=rf"an empty name between slashes; .*, or {url} if files have such names"
        ):
            find_files(corpus)
    assert [each.url for each in find_files(url).files] == [f"{url}//log/a.txt"]


def test_markers_of_folders_and_names_like_patterns(s3: S3Server, url: str) -> None:
    """Regression: a folder that was made in a store's console could not be read."""
    names = ["a b+%20#.txt", "br[0].txt", "st*r.txt", "sub/q?.txt"]
    objects = {f"{url}/{name}": b"text" for name in names} | {f"{url}/": b"", f"{url}/sub/": b"", f"{url}/empty/": b""}
    for name, content in objects.items():
        fsspec.filesystem("s3").call_s3("put_object", Bucket=url.split("/")[2], Key=name.split("/", 3)[3], Body=content)
    found, named, _ = find_files(url)
    assert ([file.url for file in found], named) == ([f"{url}/{name}" for name in names], False)
    for name in names:
        found, named, _ = find_files(f"{url}/{name}")
        assert ([file.url for file in found], named) == ([f"{url}/{name}"], True)
    with pytest.raises(NotFound, match="there is no such file"):
        find_files(f"{url}/empty")


def test_hidden_files_are_counted(s3: S3Server, url: str) -> None:
    """Regression: they were left out without a word, though those on disk are counted."""
    for name in ("a.txt", ".b.txt", "c/.d/e.txt"):
        fsspec.filesystem("s3").pipe_file(f"{url}/{name}", b"text")
    assert find_inputs(BuildOptions((url,), Path("unused"))).skipped == {"hidden": 2}


def test_dots_between_slashes_are_names(tmp_path: Path, s3: S3Server, url: str) -> None:
    """Regression: backups with such names were left out as hidden files."""
    names = ["../a.txt", "./b.txt", "c/./d.txt", "e/../f.txt"]
    for name in names:
        fsspec.filesystem("s3").pipe_file(f"{url}/{name}", name.encode())
    found = documents(tmp_path, [url], "store")
    assert sorted(source for source, _ in found) == [f"{url}/{name}" for name in names]
    for name in ("c/./d.txt", "c/."):
        with pytest.raises(
            InvalidArgument, match=f"the name '.' between slashes; .*, or {url}/c if files have such names"
        ):
            find_files(f"{url}/{name}")


def test_folders_may_have_names_like_patterns(s3: S3Server, url: str) -> None:
    """Regression: such a folder was not found."""
    for name in ("dir[1]/a.txt", "dir1/b.txt", "s*r/c.txt", "star/d.txt"):
        fsspec.filesystem("s3").pipe_file(f"{url}/{name}", b"text")
    for corpus, names in {"dir[1]": ["dir[1]/a.txt"], "dir[1]/": ["dir[1]/a.txt"], "s*r/": ["s*r/c.txt"]}.items():
        found, named, _ = find_files(f"{url}/{corpus}")
        assert ([file.url for file in found], named) == ([f"{url}/{name}" for name in names], False)
    found, named, _ = find_files(f"{url}/st*r/*.txt")
    assert ([file.url for file in found], named) == ([f"{url}/star/d.txt"], True)


def test_an_archived_object_is_named(s3: S3Server, url: str) -> None:
    """Regression: the message spoke of credentials."""
    bucket, prefix = url.removeprefix("s3://").split("/", 1)
    arguments = {"Bucket": bucket, "Key": f"{prefix}/cold.txt", "Body": b"text", "StorageClass": "GLACIER"}
    fsspec.filesystem("s3").call_s3("put_object", **arguments)
    with pytest.raises(Unsupported, match=f"{url}/cold.txt: in the store's archive .* restore it first"):
        find_inputs(BuildOptions((url,), Path("unused")))


def test_an_object_whose_name_ends_with_a_slash_is_named(s3: S3Server, url: str) -> None:
    """Regression: it was left out without a word. fsspec cannot read it."""
    bucket, prefix = url.removeprefix("s3://").split("/", 1)
    for name, content in (("a.txt", b"text"), ("b/", b"lost"), ("c/", b"")):
        fsspec.filesystem("s3").call_s3("put_object", Bucket=bucket, Key=f"{prefix}/{name}", Body=content)
    inputs = find_inputs(BuildOptions((url,), Path("unused")))
    assert [file.path for file in inputs.files] == [f"{url}/a.txt"]
    assert [(each.place, each.reason) for each in inputs.unread] == [(f"{url}/b/", "name that ends with a slash")]


def test_a_file_and_a_folder_of_one_name_are_both_read(tmp_path: Path, s3: S3Server, url: str) -> None:
    """Regression: a pattern lost the file, and so did the URL of both."""
    for name in ("one", "one/a", "one.txt", "two/b"):
        fsspec.filesystem("s3").pipe_file(f"{url}/{name}", b"two words")
    wanted = {
        url: ["one", "one.txt", "one/a", "two/b"],
        f"{url}/one": ["one", "one/a"],
        f"{url}/*": ["one", "one.txt"],
        f"{url}/o*": ["one", "one.txt"],
        f"{url}/**": ["one", "one.txt", "one/a", "two/b"],
    }
    for number, (corpus, names) in enumerate(wanted.items()):
        read = documents(tmp_path, [corpus], str(number))
        assert [source for source, _ in read] == [f"{url}/{name}" for name in names], corpus


def test_corpora_are_streamed(tmp_path: Path, s3: S3Server, corpus: str) -> None:
    for names in (["a.jsonl.zst", "b.jsonl.gz", "e.parquet"], ["d.py"], [""]):
        expected = documents(tmp_path, [str(tmp_path / "local" / name) for name in names], f"local-{names[0]}")
        s3.proxy.cut_after(3000, 5000)
        found = documents(tmp_path, [f"{corpus}/{name}" for name in names], f"remote-{names[0]}")
        assert sorted(ids for _, ids in found) == sorted(ids for _, ids in expected)
        assert {source.partition(corpus)[0] for source, _ in found if source} == {""}
    files, named, _ = find_files(f"{corpus}/*.jsonl.*")
    assert ([file.url for file in files], named) == ([f"{corpus}/a.jsonl.zst", f"{corpus}/b.jsonl.gz"], True)
    assert files == find_files(f"{corpus}/*.jsonl.*")[0]
    with pytest.raises(NotFound, match=r"no\.txt: there is no such file; check the URL"):
        find_files(f"{corpus}/no.txt")
    with pytest.raises(InvalidArgument, match="f.npy: an array of tokens is mapped into memory; copy the file to disk"):
        documents(tmp_path, [f"{corpus}/f.npy"], "ids")
    s3.proxy.refuse_after(0)
    with pytest.raises(Unavailable, match="does not answer as it should"):
        documents(tmp_path, [f"{corpus}/d.py"], "nothing")


def test_a_build_is_pushed(tmp_path: Path, s3: S3Server, url: str) -> None:
    shards = [str(write_jsonl(tmp_path / f"{seed}.jsonl", make_texts(5, seed=seed))) for seed in range(2)]
    large = str(write_jsonl(tmp_path / "large.jsonl", make_texts(800)))
    options = BuildOptions((shards[0],), tmp_path / "unused", tokenizer=write_tokenizer(tmp_path))
    command = ("build", "--output", url, "--tokenizer", str(options.tokenizer), "--json", shards[0])

    first = suffolk(*command)
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["push"]["generation"] == 1
    with pytest.raises(InvalidArgument, match="holds a datastore already; give --append to add to it"):
        build_at(url, options, None, 3, SILENT)
    added = replace(options, corpora=(shards[1],), mode="append")
    assert build_at(url, added, tmp_path / "work", 3, SILENT)[1].generation == 2
    pull(url, tmp_path / "copy")
    require_equal(tmp_path / "work", tmp_path / "copy")
    assert len(read_manifest(tmp_path / "copy").segments) == 2

    other = replace(options, mode="replace", tokenizer=None, vocab_size=90)
    with pytest.raises(Unsupported, match="holds a datastore with the vocabulary 600, and the given one has 90"):
        build_at(url, other, None, 3, SILENT)
    s3.proxy.refuse_after(150_000)  # in the middle of the segment
    new = tmp_path / "new"
    with pytest.raises(Unavailable, match=f"is complete in {new}; 'suffolk push {new} {url}' sends it"):
        build_at(url, replace(options, mode="replace", corpora=(large,)), new, 3, SILENT)
    s3.proxy.heal()
    assert require_whole(url) == 2
    assert push(new, url).generation == 3


def test_a_temporary_folder_stays_only_if_its_datastore_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    shard = str(write_jsonl(tmp_path / "a.jsonl", make_texts(5)))
    options = BuildOptions((shard,), tmp_path / "unused", tokenizer=write_tokenizer(tmp_path))
    build_at(f"file://{tmp_path}/remote", options, None, 3, SILENT)
    with pytest.raises(NotFound, match="no such file or folder"):
        build_at(f"file://{tmp_path}/other", replace(options, corpora=("nothing",)), None, 3, SILENT)
    assert list((tmp_path / "temporary").iterdir()) == []
    with pytest.raises(NotFound, match="file:///proc/nothing/.* 'suffolk push .* sends it"):
        build_at("file:///proc/nothing", options, None, 3, SILENT)
    [kept] = (tmp_path / "temporary").iterdir()
    assert push(kept / "store", f"file://{tmp_path}/later").generation == 1


class Interrupted(WorkProgress):
    """Ends a build when it begins to sort its second segment."""

    def note(self, text: str) -> None:
        if "-00001.segment" in text:
            raise KeyboardInterrupt


def test_an_interrupted_append_goes_on_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    shards = [str(write_jsonl(tmp_path / f"{seed}.jsonl", make_texts(60, seed=seed))) for seed in range(3)]
    url = f"file://{tmp_path}/remote"
    options = BuildOptions(
        tuple(shards[:1]), tmp_path / "unused", tokenizer=write_tokenizer(tmp_path), segment_tokens=1
    )
    build_at(url, options, None, 3, SILENT)
    more = replace(options, corpora=tuple(shards[1:]), mode="append")
    with pytest.raises(KeyboardInterrupt, match="before the end; add --work-folder .* to go on after the finished"):
        build_at(url, more, None, 3, Interrupted())
    assert require_whole(url) == 1
    [kept] = (tmp_path / "temporary").iterdir()
    shutil.copytree(kept, tmp_path / "stale")
    report, pushed = build_at(url, more, kept / "store", 3, SILENT)
    assert (report.resumed_segments, pushed.generation, pushed.segments) == (1, 2, 3)
    with pytest.raises(
        Unavailable, match="holds an interrupted build"
    ):  # it adds to generation 1, which is not the newest
        build_at(url, more, tmp_path / "stale" / "store", 3, SILENT)
