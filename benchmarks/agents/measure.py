"""Measures a model that edits files in sessions of several turns. Every method answers every turn, in one process."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from suffolk.benchmarks.decode.measure import WARM_UP_TOKENS
from suffolk.benchmarks.decode.options import PLAIN, DecodingOptions
from suffolk.benchmarks.decode.report import PACKAGES as PACKAGES
from suffolk.benchmarks.decode.setup import load_target, target_facts
from suffolk.benchmarks.decode.summary import token_rate, total
from suffolk.benchmarks.parts import keep, rotated
from suffolk.benchmarks.plot import Panel
from suffolk.benchmarks.prediction.edits import EDITS, AgentTasks, source_files
from suffolk.benchmarks.prompts import Prompt, encode_prompt, load_prompts
from suffolk.benchmarks.rollouts.memory import Memory, opened_memories
from suffolk.build_index.progress import show_part
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import check_fields
from suffolk.datastore.text_table import Table
from suffolk.serving.decoding.drafters.neural.tree_bounds import rows_behind
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

METHODS = ("prompt-lookup", "prediction", "own store", "shared store", "arctic")
_TASK = "{edit} Change nothing else. Answer with the whole file and no explanation.\n\n```python\n{file}\n```"
_BLOCK = re.compile(r"```[a-z]*\n(.*?)(?:\n```|$)", re.DOTALL)
COLUMNS = {
    "sessions": "{part}",
    "method": "{way}",
    "tokens/s": "{tokens_per_second:.1f}",
    "speed-up": "{speed_up:.2f}",
    "least": "{speed_up_least:.2f}",
    "M": "{mean_generated_length:.2f}",
    "identical": "{identical} of {turns}",
}
NOTES = (
    "a turn: the prompt holds the file as it is now and asks for one edit; the answer is the whole file",
    "own store: hybrid with a live store of the session's earlier answers; shared store: of all sessions' answers",
    "prediction: own store, and the file as it is now is the predicted output",
    "arctic: Arctic Inference's suffix trees of the request and of all sessions' answers",
    "speed-up: ratio of all tokens per second to plain decoding, without the prompt's pass; least: the worst turn",
    "M: tokens generated per target pass; identical: answers equal to plain decoding's token for token",
    "the methods run every turn one after the other, in rotating order",
)


@dataclass(frozen=True, kw_only=True)
class AgentOptions(AgentTasks):
    """Settings of ``suffolk bench agents``. Checked when made.

    Attributes:
        decoding: the model, the length of answers, and the temperature. Its prompts and drafters are not used.
        methods: some of ``METHODS``.
    """

    decoding: DecodingOptions
    methods: tuple[Annotated[str, METHODS], ...]

    def __post_init__(self) -> None:
        check_fields(self)
        if bool(self.files) == bool(self.tasks):
            raise InvalidArgument("give either ", Field("files"), " or ", Field("tasks"))


def measure_agents(options: AgentOptions) -> dict[str, Any]:
    """Run the measurement to its end or to Ctrl-C; return the results by name.

    In each turn the prompt holds the current file and no earlier turn. So prompt lookup searches only the file. A store also
    holds text of earlier turns and sessions. All methods generate the same answers, because they share the seed
    of the turn.

    Raises the errors of ``source_files`` and ``Target.load``.
    """
    decoding = options.decoding
    tasks = _first_tasks(options)
    target = load_target(decoding)
    longest = max(len(_encode(each, target, decoding.model)) for each in tasks.values())
    capacity = longest + 2 * decoding.max_new_tokens + rows_behind(decoding.max_nodes)
    with opened_memories(options.methods, target.vocab_size) as memories:
        found = find_costs(target, 1, decoding.costs)
        drafters = {way: memory.drafter for way, memory in memories.items()}
        with Engine(target, drafters, found.costs, slots=1, capacity=capacity, queue=0, prefix_reuse=False) as engine:
            sessions = _Sessions(engine, memories, options)
            count = len(tasks) * options.sessions * sessions.turns
            kept, stopped = keep(sessions.run(tasks), count, "turns of all sessions")
    runs = [row for rows in kept for row in rows]
    return {
        "stopped": stopped,
        "target": target_facts(target),
        "costs": {"source": found.source},
        "summary": summarize(runs, tuple(memories)),
        "runs": runs,
    }


@dataclass(frozen=True, slots=True)
class _Task:
    """A turn's prompt, and the file that the prompt holds."""

    prompt: Prompt
    file: str

    @staticmethod
    def of(edit: str, file: str) -> _Task:
        """Return the task whose prompt holds ``file`` and asks for ``edit``."""
        return _Task(Prompt("", "", ({"role": "user", "content": _TASK.format(edit=edit, file=file)},)), file)


def _first_tasks(options: AgentOptions) -> dict[str, _Task]:
    """The first task of each file, or all tasks, by name."""
    seed = options.decoding.seed
    if options.files:
        texts = source_files(options.files, options.limit, options.lines, seed)
        return {name: _Task.of(EDITS[0], text) for name, text in texts.items()}
    prompts = load_prompts(options.tasks, "chat", options.limit, seed, "tasks")
    if plain := [each.name for each in prompts if not each.messages]:
        raise InvalidArgument(Field("tasks"), f": the prompt {plain[0]!r} has no messages, which hold the file to edit")
    return {each.name: _Task(each, _last_block(each.messages[-1]["content"])) for each in prompts}


def _last_block(text: str) -> str:
    """Return the last code block of ``text``, or the whole text if it has no code block."""
    return str((_BLOCK.findall(f"{text}\n") or [text])[-1])


@dataclass(frozen=True, slots=True)
class _Sessions:
    """The sessions of all files, one after the other."""

    engine: Engine
    memories: dict[str, Memory]
    options: AgentOptions

    @property
    def turns(self) -> int:
        return 1 if self.options.tasks else self.options.turns

    def run(self, tasks: dict[str, _Task]) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows of each turn. The methods run in rotating order."""
        list(self.engine.generate([1, 2, 3], SamplingSettings(WARM_UP_TOKENS)))
        number = 0
        for name, first in tasks.items():
            for session in range(self.options.sessions):
                task = first
                for turn in range(self.turns):
                    rows, answer = self._turn(f"{name} {session}", task, number)
                    yield [row | {"file": name, "session": session + 1, "turn": turn + 1} for row in rows]
                    rates = ", ".join(f"{row['way']} {row['tokens_per_second']:.1f}" for row in rows)
                    show_part(f"{name}, session {session + 1}, turn {turn + 1}: tokens/s {rates}")
                    task = _Task.of(EDITS[(turn + 1) % len(EDITS)], edited_file(answer))
                    number += 1

    def _turn(self, group: str, task: _Task, number: int) -> tuple[list[dict[str, Any]], str]:
        target, decoding = self.engine.target, self.options.decoding
        ids = _encode(task, target, decoding.model)
        settings = SamplingSettings(decoding.max_new_tokens, decoding.temperature, seed=decoding.seed + number)
        rows: list[dict[str, Any]] = []
        answers: dict[str, list[int]] = {}
        for way in rotated(list(self.memories), number):
            draft_options = DraftOptions(task.file if way == "prediction" else None, group=group)
            generation = self.engine.generate(ids, settings, way, decoding.max_nodes, draft_options)
            list(generation)
            answers[way] = generation.tokens
            rows.append({"way": way, **generation.stats.to_dict()})
        for way, memory in self.memories.items():
            memory.learn(group, answers[way])
        for row in rows:
            row["identical"] = answers[row["way"]] == answers[PLAIN]
        return rows, target.tokenizer.decode(answers[PLAIN], skip_special_tokens=True)


def _encode(task: _Task, target: Any, model: str) -> Sequence[int]:
    ids = encode_prompt(task.prompt, target.tokenizer, model)
    if target.context_length is not None and len(ids) > target.context_length:
        raise InvalidArgument(f"a prompt has {len(ids)} tokens, the model takes {target.context_length}; lower --lines")
    return ids


def summarize(runs: Sequence[dict[str, Any]], ways: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row for each part of the sessions and each method, in order. A part without runs has no row."""
    parts = {
        "first sessions": [run for run in runs if run["session"] == 1],
        "later sessions": [run for run in runs if run["session"] > 1],
        "all": runs,
    }
    return [{"part": name, "way": way} | _summary(part, way) for name, part in parts.items() if part for way in ways]


def _summary(part: Sequence[dict[str, Any]], way: str) -> dict[str, Any]:
    runs, plain = ([run for run in part if run["way"] == each] for each in (way, PLAIN))
    tokens, steps = total(runs, "tokens"), total(runs, "steps")
    return {
        "turns": len(runs),
        "tokens": tokens,
        "tokens_per_second": token_rate(runs),
        "speed_up": token_rate(runs) / token_rate(plain) if token_rate(plain) else 1.0,
        "speed_up_least": min(
            token_rate([run]) / max(token_rate([other]), 1e-9) for run, other in zip(runs, plain, strict=True)
        ),
        "mean_generated_length": (tokens - len(runs)) / steps if steps else 1.0,
        "identical": sum(run["identical"] for run in runs),
    }


def edited_file(answer: str) -> str:
    """Return the file in ``answer``: the first code block, or the whole answer if it has no code block."""
    found = _BLOCK.search(answer)
    return found.group(1) if found else answer


def tables(results: dict[str, Any]) -> list[str | Table]:
    """The table."""
    return [Table.of(COLUMNS, results["summary"])]


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot the speed-up by method, one bar for each part of the sessions."""
    summary = results["summary"]
    parts, ways = (list(dict.fromkeys(each[name] for each in summary)) for name in ("part", "way"))
    bars = {part: [each["speed_up"] for each in summary if each["part"] == part] for part in parts}
    return [Panel("speed-up", "times plain decoding", ways, bars)]
