"""The texts of one request while they run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.loop.stats import GenerationStats
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.net.metrics import CallOutcome
from suffolk.serving.worker.call import GenerateCall, StepJoiner
from suffolk.serving.worker.service import DecodeService


@dataclass(slots=True)
class TextRun:
    """One text of a request.

    Attributes:
        index: index of the text among the choices.
        first_of_prompt: whether it is the first text of its prompt.
        pieces: the text so far, in pieces.
        finish: the engine's finish reason; empty while it runs.
    """

    index: int
    generate_call: GenerateCall
    generation: Generation
    first_of_prompt: bool
    pieces: list[str] = field(default_factory=list)
    finish: str = ""

    @property
    def stats(self) -> GenerationStats:
        return self.generation.stats

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class TextRuns(Sequence[TextRun]):
    """All texts of one request, generated side by side. ``cancel`` is thread-safe.

    Attributes:
        shows_sources: whether the caller may see which drafters proposed the tokens.
    """

    def __init__(
        self, service: DecodeService, generate_calls: Sequence[GenerateCall], texts_per_prompt: int = 1
    ) -> None:
        """``generate_calls``: ``texts_per_prompt`` of them per prompt, in order of prompts."""
        self._service = service
        self._generate_calls = generate_calls
        self._texts_per_prompt = texts_per_prompt
        self.shows_sources = service.shows_sources(generate_calls[0])
        self._runs: list[TextRun] = []
        self._lock = threading.Lock()
        self._cancelled = False

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._runs[index]

    def start(self) -> None:
        """Start all texts, or none.

        Raises the errors of ``DecodeService.start``. Call it in a thread, because encoding a long prediction takes
        time.
        """
        try:
            for index, generate_call in enumerate(self._generate_calls):
                generation = self._service.start(generate_call)
                with self._lock:
                    self._runs.append(TextRun(index, generate_call, generation, index % self._texts_per_prompt == 0))
                    cancelled = self._cancelled
                if cancelled:  # cancelled while this thread was in ``start``
                    generation.cancel()
                    return
        except SuffolkError:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Cancel all texts; their slots are free within one step. No effect on texts that have ended."""
        with self._lock:
            self._cancelled = True
            runs = list(self._runs)
        for run in runs:
            run.generation.cancel()

    async def steps(self, outcome: CallOutcome, interval: float = 0.0) -> AsyncIterator[tuple[TextRun, Step]]:
        """The steps of all texts as they arrive, joined within ``interval`` seconds (``StepJoiner``).

        Raises the first error of a text, and Unavailable if a text was cancelled.
        """
        if len(self) == 1:
            async for step in self._steps_of(self[0], outcome, interval):
                yield self[0], step
            return
        queue: asyncio.Queue[tuple[TextRun, Step] | SuffolkError | None] = asyncio.Queue()

        async def read(run: TextRun) -> None:
            end: SuffolkError | None = None
            try:
                async for step in self._steps_of(run, outcome, interval):
                    queue.put_nowait((run, step))
            except SuffolkError as error:
                end = error
            queue.put_nowait(end)

        readers = [asyncio.create_task(read(run)) for run in self]
        try:
            ended = 0
            while ended < len(readers):
                found = await queue.get()
                if isinstance(found, SuffolkError):
                    raise found
                if found is None:
                    ended += 1
                else:
                    yield found
        finally:
            for reader in readers:
                reader.cancel()

    async def _steps_of(self, run: TextRun, outcome: CallOutcome, interval: float) -> AsyncIterator[Step]:
        joiner = StepJoiner(interval)
        async for step in run.generation:
            if step.finish:
                self._service.record(run.generation, run.generate_call)
            if (joined := joiner.add(step)) is not None:
                run.pieces.append(joined.text)
                run.finish = joined.finish
                yield joined
        self._service.require_end(run.generation, outcome)
