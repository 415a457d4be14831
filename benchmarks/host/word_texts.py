"""Python's standard library as texts of words: a vocabulary, a tokenizer, a datastore and texts, without any model's files."""

from __future__ import annotations

import re
import sysconfig
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.documents import DocumentTableWriter
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, publish
from suffolk.datastore.segment import separator, token_dtype, write_segment

VOCAB = 4096
_DEPTH = 64
_MODULES = 80
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class WordTexts:
    """Documents of word ids.

    Attributes:
        words: the words, by id. The last stands for all other words.
        documents: int32[n] each.
    """

    words: Sequence[str]
    documents: Sequence[Ids]

    @staticmethod
    def of_standard_library() -> WordTexts:
        """The first modules of Python's standard library that are one file, in order of their names."""
        folder = Path(sysconfig.get_path("stdlib"))
        texts = [_WORD.findall(path.read_text("utf-8", "replace")) for path in sorted(folder.glob("*.py"))[:_MODULES]]
        counts = Counter(word for text in texts for word in text)
        words = [word for word, _ in counts.most_common(VOCAB - 1)]
        ids = {word: number for number, word in enumerate(words)}
        documents = [np.array([ids.get(word, VOCAB - 1) for word in text], np.int32) for text in texts]
        return WordTexts([*words, "?"], documents)

    @cached_property
    def tokenizer(self) -> Any:
        """A transformers tokenizer of the words."""
        from tokenizers import Tokenizer, decoders, models
        from transformers import PreTrainedTokenizerFast

        tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(self.words)}, "?"))
        tokenizer.decoder = decoders.Fuse()
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer)  # type: ignore[no-untyped-call]

    def write_store(self, folder: Path, documents: Sequence[Ids]) -> Datastore:
        """Publish ``documents`` as a datastore in ``folder``, and open it."""
        (folder / SEGMENTS_NAME).mkdir(parents=True)
        kind = token_dtype(VOCAB)
        tokens = np.concatenate([np.append(each, separator(kind)) for each in documents]).astype(kind)
        table = DocumentTableWriter()
        table.extend((f"document {number}", {}) for number in range(len(documents)))
        path = folder / SEGMENTS_NAME / "000000.seg"
        entry = write_segment(path, tokens, vocab_size=VOCAB, order_depth=_DEPTH, documents=table.finish(), threads=1)
        publish(folder, Manifest(1, (entry,), VOCAB, _DEPTH, None, "2026-01-01T00:00:00Z"))
        return open_datastore(folder, threads=1)

    def excerpts(self, documents: Sequence[Ids], count: int, size: int, seed: int) -> list[Ids]:
        """``count`` random runs of ``size`` words of ``documents``."""
        random, long = np.random.default_rng(seed), [each for each in documents if len(each) >= size]
        chosen = [long[number] for number in random.integers(0, len(long), count).tolist()]
        begins = [int(random.integers(0, len(each) - size + 1)) for each in chosen]
        return [each[begin : begin + size] for each, begin in zip(chosen, begins, strict=True)]
