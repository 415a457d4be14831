"""The threads that answer gRPC calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class CallPool(ThreadPoolExecutor):
    """Threads for calls, which counts the calls that run or wait for a thread. Thread-safe.

    Attributes:
        most: calls beyond which the pool is full.
    """

    def __init__(self, name: str, threads: int, most: int) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self.most = most
        self._calls = 0
        self._count_lock = threading.Lock()

    def is_full(self) -> bool:
        """Whether there is no room for one more call."""
        return self._calls >= self.most

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future = super().submit(work, *args, **named)
        self._count(1)
        future.add_done_callback(lambda _: self._count(-1))
        return future

    def _count(self, change: int) -> None:
        with self._count_lock:
            self._calls += change


class CallingThread(ThreadPoolExecutor):
    """Runs each call in the thread that submits it. gRPC takes only a ThreadPoolExecutor."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **named))
        except Exception as error:  # noqa: BLE001  the future holds it
            future.set_exception(error)
        return future
