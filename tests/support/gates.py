"""A target whose passes wait at a gate, so that tests know the engine's state when they act."""

from __future__ import annotations

import threading
from typing import Any

from suffolk.serving.decoding.engine.model.target import Target
from tests.support.waiting import HANG


class Gate:
    """Holds every pass of ``target``'s model. Passes run freely after the context ends."""

    def __init__(self, target: Target) -> None:
        self._forward = target.model.forward
        self._begun = threading.Semaphore(0)
        self._let = threading.Semaphore(0)
        self._is_open = False
        target.model.forward = self._pass

    def wait(self) -> None:
        """Wait until the next pass has begun and is held."""
        assert self._begun.acquire(timeout=HANG)

    def let(self) -> None:
        """Let one pass run."""
        self._let.release()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = True
        self._let.release()

    def _pass(self, *arguments: Any, **options: Any) -> Any:
        self._begun.release()
        if not self._is_open:
            assert self._let.acquire(timeout=HANG)
        return self._forward(*arguments, **options)
