"""A target whose passes wait to be let through, so that tests know what the engine does when they act."""

from __future__ import annotations

import threading
from typing import Any

from suffolk.serving.engine.model.target import Target
from tests.support.waiting import HANG


class Gate:
    """Holds every pass of ``target``'s model; all go through from the end of the context on."""

    def __init__(self, target: Target) -> None:
        self._forward = target.model.forward
        self._begun = threading.Semaphore(0)
        self._let = threading.Semaphore(0)
        self._is_open = False
        target.model.forward = self._pass

    def wait(self) -> None:
        """Until a pass that was not waited for has begun, which is then held."""
        assert self._begun.acquire(timeout=HANG)

    def let(self) -> None:
        """One pass goes through."""
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
