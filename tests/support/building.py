"""Shared by the tests of builds: a small real tokenizer, documents, and a way to run the command."""

from __future__ import annotations

import functools
import json
import random
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.manifest import read_manifest

ROOT = Path(__file__).resolve().parents[2]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCAB_SIZE = 600


@functools.cache
def tokenizer_json() -> str:
    """A byte-level BPE like GPT-2's, trained on sources of this repository."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[AddedToken(special, special=True, normalized=False) for special in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sources = sorted((ROOT / "datastore").glob("*.py"))
    tokenizer.train_from_iterator(
        [source.read_text() for source in sources] + ["it's we'll I'm don't you've they're"], trainer
    )
    return str(tokenizer.to_str())


def write_tokenizer(folder: Path) -> str:
    """Save the tokenizer as a Hugging Face folder; return its path."""
    place = folder / "tokenizer"
    place.mkdir(exist_ok=True)
    (place / "tokenizer.json").write_text(tokenizer_json())
    return str(place)


def tokenize(text: str) -> list[int]:
    """Return the ids from Hugging Face tokenizers."""
    return list(Tokenizer.from_str(tokenizer_json()).encode(text, add_special_tokens=False).ids)


def make_texts(count: int, words: int = 60, seed: int = 1) -> list[str]:
    """Make documents that resemble source code. Equal arguments give equal documents."""
    chooser = random.Random(seed)
    parts = [
        "def",
        "return",
        "self.",
        "value",
        " = ",
        "\n    ",
        "it's",
        "(x)",
        "é",
        "中文",
        "[0]",
        " # don't",
        "==",
        "\n\n",
        "foo_bar",
    ]
    return [f"document {number}\n" + " ".join(chooser.choices(parts, k=words)) for number in range(count)]


def write_jsonl(path: Path, texts: list[str]) -> Path:
    """Write a JSON lines file with fields ``id`` and ``text``."""
    path.write_text(
        "".join(json.dumps({"id": f"doc-{number}", "text": text}) + "\n" for number, text in enumerate(texts))
    )
    return path


def read_documents(store: Path) -> list[tuple[str | None, list[int]]]:
    """Return every document of a datastore as (source, ids), in order."""
    with open_datastore(store) as datastore:
        return [(document.source, document.tokens.tolist()) for document in datastore.documents()]


def segment_bytes(store: Path) -> dict[str, bytes]:
    """Return the bytes of the published segments."""
    return {entry.name: (store / "segments" / entry.name).read_bytes() for entry in read_manifest(store).files()}


def command(*arguments: str | Path) -> list[str]:
    """Return the command as a list for subprocess."""
    return [
        sys.executable,
        "-c",
        "import sys; from suffolk.cli.main import main; sys.exit(main())",
        *map(str, arguments),
    ]
