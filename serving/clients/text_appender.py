"""Appends finished answers to a live datastore in the background."""

from __future__ import annotations

import logging
import threading
from collections import deque

import numpy as np
import numpy.typing as npt

from suffolk.datastore.appendable import Appendable
from suffolk.datastore.documents import NO_METADATA, Document
from suffolk.datastore.errors import InvalidArgument

LOG = logging.getLogger("suffolk.remember")
Text = tuple[npt.NDArray[np.int32], str | None]
"""Token ids and their group."""
MAX_TEXTS = 1024
"""Texts that may wait."""
MAX_TOKENS = 4 << 20
"""Tokens that may wait."""
BATCH_TOKENS = 1 << 18
"""Tokens of one append. A longer text is an append of its own."""
CLOSE_SECONDS = 5.0
"""Seconds that ``close`` waits for the texts that are left."""


class TextAppender:
    """Queues texts and appends them in a thread. ``add`` never waits: if the queue is full, the text is dropped and counted.

    The texts of a failed append are lost. ``store`` itself repeats appends if it can. Thread-safe.
    """

    def __init__(self, store: Appendable) -> None:
        """``close`` leaves ``store`` open."""
        self._store = store
        self._changed = threading.Condition()
        self._waiting: deque[Text] = deque()
        self._tokens = 0  # in the waiting texts
        self._closed = False
        self._counts = {"appended": 0, "dropped": 0, "failed": 0}
        self._logged: set[type[Exception]] = set()
        self._thread = threading.Thread(target=self._run, name="remember", daemon=True)
        self._thread.start()

    def add(self, tokens: npt.NDArray[np.int32], group: str | None = None) -> bool:
        """Queue a copy of a text. Returns False if it is dropped. An empty text is skipped."""
        if not len(tokens):
            return True
        with self._changed:
            full = len(self._waiting) >= MAX_TEXTS or self._tokens + len(tokens) > MAX_TOKENS
            if full or self._closed or int(tokens.max()) >= self._store.vocab_size:
                self._counts["dropped"] += 1
                return False
            self._waiting.append((np.array(tokens, np.int32), group))
            self._tokens += len(tokens)
            self._changed.notify()
        return True

    def stats(self) -> dict[str, int]:
        """The numbers of texts that were appended, were dropped, have failed, and wait."""
        with self._changed:
            return {**self._counts, "waiting": len(self._waiting)}

    def close(self) -> None:
        """Append the texts that wait, for up to CLOSE_SECONDS; the rest is dropped. Later texts are dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(CLOSE_SECONDS)
        with self._changed:
            self._counts["dropped"] += len(self._waiting)
            self._waiting.clear()

    def __enter__(self) -> TextAppender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while texts := self._take():
            self._append(texts)

    def _take(self) -> list[Text]:
        """The texts of the next append; none once ``close`` was called and no text is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            texts: list[Text] = []
            size = 0
            while self._waiting and (not texts or size + len(self._waiting[0][0]) <= BATCH_TOKENS):
                texts.append(self._waiting.popleft())
                size += len(texts[-1][0])
            self._tokens -= size
            return texts

    def _append(self, texts: list[Text]) -> None:
        documents = [Document(None, NO_METADATA, tokens.astype(np.uint32)) for tokens, _ in texts]
        try:
            self._store.append_batch(documents, [group for _, group in texts])
        except InvalidArgument as error:
            if len(texts) > 1:  # one of them is too large
                for text in texts:
                    self._append([text])
                return
            self._fail(error, 1)
        except Exception as error:  # noqa: BLE001  an error of any kind must not end the thread
            self._fail(error, len(texts))
        else:
            self._count("appended", len(texts))

    def _fail(self, error: Exception, texts: int) -> None:
        self._count("failed", texts)
        if type(error) not in self._logged:  # one line for each kind
            self._logged.add(type(error))
            LOG.warning("texts are not remembered: %s", error)

    def _count(self, outcome: str, texts: int) -> None:
        with self._changed:
            self._counts[outcome] += texts
