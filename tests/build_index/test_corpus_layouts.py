"""The table of data sets in docs/how-to/choose-a-corpus.md: each row builds a small folder of that layout."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from suffolk.cli.main import main
from tests.support.building import ROOT, tokenizer_json

PAGE = ROOT / "docs/how-to/choose-a-corpus.md"
ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().partition("| data set |")[2].partition("\n\n")[0].splitlines()[2:]
]
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def lines(*records: dict[str, Any]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def table(path: Path, *records: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(list(records)), path)


def fineweb(corpus: Path) -> None:
    row = {"dump": "CC-MAIN-2024-10", "url": "http://a", "date": "2024", "file_path": "s3://a", "language": "en",
           "language_score": 0.9, "token_count": 3}  # fmt: skip
    for shard in range(2):
        table(
            corpus / f"000_0000{shard}.parquet", *({"text": "Some text.", "id": f"<urn:{n}>"} | row for n in range(2))
        )
    write(corpus / "../../README.md", b"---\nlicense: odc-by\n---\n")


def the_stack(corpus: Path) -> None:
    row = {"size": 9, "ext": "py", "lang": "Python", "max_stars_repo_name": "a/b", "max_stars_repo_licenses": ["MIT"],
           "content": "print(1)\n", "alphanum_fraction": 0.5}  # fmt: skip
    table(corpus / "train-00000-of-00206.parquet", *(row | {"hexsha": f"{n:040}"} for n in range(4)))


def c4(corpus: Path) -> None:
    records = [{"text": "Some text.", "timestamp": "2019-04-25T12:57:54Z", "url": f"http://{n}"} for n in range(2)]
    for shard in range(2):
        write(corpus / f"c4-train.0000{shard}-of-01024.json.gz", gzip.compress(lines(*records)))


def dolma(corpus: Path) -> None:
    row = {"text": "Some text.", "source": "c4", "added": "2023", "created": "2019", "metadata": {"provenance": "p"}}
    write(corpus / "c4-0000.json.gz", gzip.compress(lines(*(row | {"id": str(n)} for n in range(4)))))


def redpajama(corpus: Path) -> None:
    meta = {"timestamp": "2023", "yymm": "2301", "arxiv_id": "2301.1", "language": "en", "url": "http://a"}
    write(corpus / "arxiv_0.jsonl", lines(*({"text": "Some text.", "meta": meta} for _ in range(4))))


def redpajama_2(corpus: Path) -> None:
    text = " ".join(map(str, range(2_000)))  # most of the bytes must be texts
    records = [{"url": f"http://{n}", "raw_content": text, "nlines": 1, "source_domain": "a"} for n in range(4)]
    write(corpus / "0003/en_head.json.gz", gzip.compress(lines(*records)))
    write(
        corpus / "0003/en_head.signals.json.gz",
        gzip.compress(lines({"id": "a", "quality_signals": {"x": []}}, {"id": "b"})),
    )
    table(corpus / "0003/en_head.minhash.parquet", {"id": "a", "signature": [1]})


def sharegpt(corpus: Path) -> None:
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
    write(corpus, json.dumps([{"id": f"c{n}", "conversations": turns} for n in range(4)], indent=2).encode())


def openai_batch(corpus: Path) -> None:
    body = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}}],
    }
    good = {"status_code": 200, "request_id": "r", "body": body}
    bad = {"status_code": 500, "request_id": "r", "body": {"error": {"message": "overloaded"}}}
    rows = [{"id": f"b{n}", "custom_id": f"q{n}", "response": good, "error": None} for n in range(4)]
    write(corpus, lines(*rows, {"id": "b4", "custom_id": "q4", "response": bad, "error": None}))


def git_repository(corpus: Path) -> None:
    for name in ("a.py", "b/c.py", "README.md", "docs/x.md"):
        write(corpus / name, b"text = 1\n")
    write(corpus / "package.json", b'{"name": "a"}')
    write(corpus / "tests/fixture.jsonl", lines({"a": 1}, {"a": 2}))
    write(corpus / "logo.png", b"\x89PNG\0")
    write(corpus / "weights.bin", LFS.encode())
    subprocess.run(["git", "init", "--quiet", corpus], check=True)


def hub_cache(corpus: Path) -> None:
    for number in range(2):
        table(corpus / f"blobs/{number:064}", *({"id": f"{number}-{n}", "text": "Some text."} for n in range(2)))
    write(corpus / "refs/main", b"b" * 40)
    write(corpus / ".no_exist/x", b"")
    for snapshot, numbers in (("a" * 40, [0]), ("b" * 40, [0, 1])):
        for number in numbers:
            link = corpus / f"snapshots/{snapshot}/data/train-{number}.parquet"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(corpus / f"blobs/{number:064}", link.parent))


LAYOUTS: dict[str, Callable[[Path], None]] = {
    "FineWeb": fineweb,
    "The Stack": the_stack,
    "C4": c4,
    "Dolma": dolma,
    "RedPajama": redpajama,
    "RedPajama 2": redpajama_2,
    "ShareGPT": sharegpt,
    "OpenAI batch files": openai_batch,
    "Git repository": git_repository,
    "Hugging Face cache": hub_cache,
}
LEFT_OUT = {"OpenAI batch files": 1}
SKIPPED = {
    "RedPajama 2": {
        "JSON records without a text (see --text-field and --records)": 1,
        "Parquet without a text column": 1,
    },
    "Git repository": {"hidden": 1, "other extension": 4},
    "Hugging Face cache": {"given twice": 1, "hidden": 1},
}


def test_each_row_has_a_layout() -> None:
    assert [row[0] for row in ROWS] == list(LAYOUTS)


@pytest.mark.parametrize(("name", "corpus", "words"), ROWS)
def test_a_data_set_needs_the_options_of_its_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, corpus: str, words: str
) -> None:
    LAYOUTS[name](tmp_path / corpus)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/tokenizer.json").write_text(tokenizer_json())
    (tmp_path / "model/chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    )
    given = ["--tokenizer", str(tmp_path / "model"), "--output", str(tmp_path / "store"), *words.split()]
    assert main(["build", "--json", *given, str(tmp_path / corpus)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["documents"], report["left_out"]) == (4, LEFT_OUT.get(name, 0))
    assert report["skipped"] == SKIPPED.get(name, {})
    if "--metadata" in words:
        assert set(report["described"].values()) == {4}
