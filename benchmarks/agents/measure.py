"""Edits files in sessions of several turns, with each method in turn, in one process."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffolk.benchmarks.decode.measure import WARM_UP_TOKENS
from suffolk.benchmarks.decode.options import LIMITS, PLAIN, DecodingOptions
from suffolk.benchmarks.decode.setup import load_target, target_facts
from suffolk.benchmarks.parts import keep, rotated
from suffolk.benchmarks.plot import Panel
from suffolk.benchmarks.prediction.edits import source_files
from suffolk.benchmarks.prompts import Prompt, encode_prompt
from suffolk.benchmarks.rollouts.memory import GroupAlone, LiveMemory, Memory, NoMemory, new_store
from suffolk.build_index.progress import show_part
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.text_table import Table
from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.drafters.neural.tree_bounds import rows_behind
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

METHODS = ("prompt-lookup", "own store", "shared store")
EDITS = (
    "Add a comment line above every function and class.",
    "Add type hints to every function.",
    "Rename the first variable or parameter of every function to a clearer name.",
    "Add a docstring to every function.",
)
_TASK = "{edit} Change nothing else. Answer with the whole file and no explanation.\n\n```python\n{file}\n```"
_BLOCK = re.compile(r"```[a-z]*\n(.*?)(?:\n```|$)", re.DOTALL)
HEADERS = ("sessions", "method", "tokens/s", "speed-up", "least", "M", "identical")
NOTES = (
    "a turn: the prompt holds the file as it is now and asks for one edit; the answer is the whole file",
    "own store: prompt lookup, and a live store of the session's earlier answers; shared store: of all sessions' answers",
    "speed-up: ratio of all tokens per second to plain decoding, without the prompt's pass; least: the worst turn",
    "M: tokens generated per target pass; identical: answers equal to plain decoding's token for token",
    "the methods run every turn one after the other, in rotating order",
)


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Settings of ``suffolk bench agents``. Checked when made.

    Attributes:
        decoding: the model, the length of answers, and the temperature. Its prompts and drafters are not used.
        files: source files to edit, or folders of them.
        limit: number of files, chosen at random.
        lines: number of lines used from the beginning of each file.
        sessions: sessions that edit each file, each from its first version on.
        turns: edits in each session, 1 to the number of ``EDITS``.
    """

    decoding: DecodingOptions
    files: tuple[Path, ...]
    limit: int = 3
    lines: int = 25
    sessions: int = 3
    turns: int = 2

    def __post_init__(self) -> None:
        for name, value in (("limit", self.limit), ("lines", self.lines), ("sessions", self.sessions)):
            if value < 1:
                raise InvalidArgument(f"{name} is {value}; it must be 1 or more")
        if not 1 <= self.turns <= len(EDITS):
            raise InvalidArgument(Field("turns"), f" is {self.turns}; it must be 1 to {len(EDITS)}")


def measure_agents(options: AgentOptions) -> dict[str, Any]:
    """Run the whole measurement, or up to Ctrl-C; return the results by name.

    In each turn the prompt holds the file as it is now, and no earlier turn. So prompt lookup finds the file, and only a store
    finds what was written in earlier turns and sessions. All methods generate the same answers: a seed belongs to a turn.

    Raises as ``source_files`` and ``Target.load``.
    """
    decoding = options.decoding
    texts = source_files(options.files, options.limit, options.lines, decoding.seed)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="suffolk-agents-")))
        target = load_target(decoding)
        memories = _memories(folder, target.vocab_size)
        for memory in memories.values():
            stack.callback(memory.close)
        longest = max(len(_encode(text, EDITS[0], target, decoding.model)) for text in texts.values())
        capacity = longest + 2 * decoding.max_new_tokens + rows_behind(decoding.max_nodes)
        found = find_costs(target, 1, decoding.costs)
        drafters = {way: memory.drafter for way, memory in memories.items()}
        engine = stack.enter_context(
            Engine(target, drafters, found.costs, slots=1, capacity=capacity, queue=0, prefix_reuse=False)
        )
        sessions = _Sessions(engine, memories, options)
        count = len(texts) * options.sessions * options.turns
        kept, stopped = keep(sessions.run(texts), count, "turns of all sessions")
    runs = [row for rows in kept for row in rows]
    return {
        "stopped": stopped,
        "target": target_facts(target),
        "costs": {"source": found.source},
        "summary": summarize(runs, tuple(memories)),
        "runs": runs,
    }


@dataclass(frozen=True, slots=True)
class _Sessions:
    """The sessions of all files, one after the other."""

    engine: Engine
    memories: dict[str, Memory]
    options: AgentOptions

    def run(self, texts: dict[str, str]) -> Iterator[list[dict[str, Any]]]:
        """The rows of each turn, with the ways in rotating order."""
        list(self.engine.generate([1, 2, 3], SamplingSettings(WARM_UP_TOKENS)))
        number = 0
        for name, text in texts.items():
            for session in range(self.options.sessions):
                file = text
                for turn in range(self.options.turns):
                    rows, answer = self._turn(f"{name} {session}", file, EDITS[turn], number)
                    yield [row | {"file": name, "session": session + 1, "turn": turn + 1} for row in rows]
                    rates = ", ".join(f"{row['way']} {row['tokens_per_second']:.1f}" for row in rows)
                    show_part(f"{name}, session {session + 1}, turn {turn + 1}: tokens/s {rates}")
                    file = edited_file(answer)
                    number += 1

    def _turn(self, group: str, file: str, edit: str, number: int) -> tuple[list[dict[str, Any]], str]:
        target, decoding = self.engine.target, self.options.decoding
        ids = _encode(file, edit, target, decoding.model)
        settings = SamplingSettings(decoding.max_new_tokens, decoding.temperature, seed=decoding.seed + number)
        rows: list[dict[str, Any]] = []
        answers: dict[str, list[int]] = {}
        for way in rotated(list(self.memories), number):
            generation = self.engine.generate(ids, settings, way, decoding.max_nodes, DraftOptions(group=group))
            for _ in generation:
                pass
            answers[way] = generation.tokens
            rows.append({"way": way, **generation.stats.to_dict()})
        for way, memory in self.memories.items():
            memory.learn(group, [answers[way]])
        for row in rows:
            row["identical"] = answers[row["way"]] == answers[PLAIN]
        return rows, target.tokenizer.decode(answers[PLAIN], skip_special_tokens=True)


class _OwnStore(LiveMemory):
    """A live store in which each session searches its own answers only."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        self.seconds = 0.0
        self._store = new_store(folder, vocab_size)
        self.drafter = make_drafter("hybrid", vocab_size, [GroupAlone(self._store)], LIMITS)


def _memories(folder: Path, vocab_size: int) -> dict[str, Memory]:
    return {
        PLAIN: NoMemory(None),
        "prompt-lookup": NoMemory(make_drafter("prompt-lookup", vocab_size, [], LIMITS)),
        "own store": _OwnStore(folder / "own", vocab_size),
        "shared store": LiveMemory(folder / "shared", vocab_size, "hybrid"),
    }


def _encode(file: str, edit: str, target: Any, model: str) -> Sequence[int]:
    prompt = Prompt("", "", ({"role": "user", "content": task(edit, file)},))
    ids = encode_prompt(prompt, target.tokenizer, model)
    if target.context_length is not None and len(ids) > target.context_length:
        raise InvalidArgument(f"a prompt has {len(ids)} tokens, the model takes {target.context_length}; lower --lines")
    return ids


PARTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "first sessions": lambda run: run["session"] == 1,
    "later sessions": lambda run: run["session"] > 1,
    "all": lambda run: True,
}


def summarize(runs: Sequence[dict[str, Any]], ways: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each part and way, in order; none for a part without runs."""
    return [
        {"part": part, "way": way} | _summary(_of(runs, belongs, way), _of(runs, belongs, PLAIN))
        for part, belongs in PARTS.items()
        for way in ways
        if any(map(belongs, runs))
    ]


def _of(runs: Sequence[dict[str, Any]], belongs: Callable[[dict[str, Any]], bool], way: str) -> list[dict[str, Any]]:
    return [run for run in runs if run["way"] == way and belongs(run)]


def _summary(runs: Sequence[dict[str, Any]], plain: Sequence[dict[str, Any]]) -> dict[str, Any]:
    tokens, steps = sum(run["tokens"] for run in runs), sum(run["steps"] for run in runs)
    return {
        "turns": len(runs),
        "tokens": tokens,
        "tokens_per_second": _rate(runs),
        "speed_up": _rate(runs) / _rate(plain) if _rate(plain) else 1.0,
        "speed_up_least": min(_rate([run]) / max(_rate([other]), 1e-9) for run, other in zip(runs, plain, strict=True)),
        "mean_generated_length": (tokens - len(runs)) / steps if steps else 1.0,
        "identical": sum(run["identical"] for run in runs),
    }


def _rate(runs: Sequence[dict[str, Any]]) -> float:
    """Tokens after the first per second."""
    seconds = sum(run["decode_seconds"] for run in runs)
    return float((sum(run["tokens"] for run in runs) - len(runs)) / seconds) if seconds else 0.0


def task(edit: str, file: str) -> str:
    """The request of a turn: the agent has read ``file`` again."""
    return _TASK.format(edit=edit, file=file)


def edited_file(answer: str) -> str:
    """The file in ``answer``: its first code block, or all of it."""
    found = _BLOCK.search(answer)
    return found.group(1) if found else answer


def agent_parts(results: dict[str, Any]) -> list[str | Table]:
    """The table."""
    return [Table(HEADERS, [_row(each) for each in results["summary"]])]


def agent_panels(results: dict[str, Any]) -> list[Panel]:
    """Plot the speed-up by method, one bar for each part of the sessions."""
    summary = results["summary"]
    parts, ways = (list(dict.fromkeys(each[name] for each in summary)) for name in ("part", "way"))
    bars = {part: [each["speed_up"] for each in summary if each["part"] == part] for part in parts}
    return [Panel("speed-up", "times plain decoding", ways, bars)]


def _row(each: dict[str, Any]) -> list[object]:
    return [
        each["part"],
        each["way"],
        f"{each['tokens_per_second']:.1f}",
        f"{each['speed_up']:.2f}",
        f"{each['speed_up_least']:.2f}",
        f"{each['mean_generated_length']:.2f}",
        f"{each['identical']} of {each['turns']}",
    ]
