"""Measure edits of the same files in several sessions, with and without a store of earlier answers.

In each turn the model reads a file, makes one edit, and prints the whole file. Ctrl-C ends it early
with exit code 130. The report then covers the finished turns, and says so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.bench.decode import DecodeModelOptions
from suffolk.cli.bench.report_options import ReportOptions
from suffolk.cli.drafting import PlannerOptions
from suffolk.cli.options.setting import REQUIRED, option, passed_on
from suffolk.datastore.settings import Count

EXAMPLES = """
suffolk bench agents --model MODEL_FOLDER --files src/ --json agents.json
suffolk bench agents --model MODEL_FOLDER --files src/ --sessions 4 --temperature 0.7 --json agents.json"""


@dataclass(frozen=True, kw_only=True)
class Options(DecodeModelOptions, PlannerOptions, ReportOptions):
    files: tuple[Path, ...] = option(REQUIRED, "Python files to edit, or folders of them", metavar="PATH", several=True)
    limit: Count = option(3, "files, chosen at random")
    lines: Count = option(25, "lines of each file, from its beginning")
    sessions: Count = option(3, "sessions that edit each file, each from its first version on")
    turns: Count = option(2, "edits in each session, 1 to 4")
    max_new_tokens: Count = option(320, "longest answer, in tokens")
    temperature: float = option(0.0, "0: greedy; then sessions of one file repeat each other (default: 0)", metavar="T")


def run(options: Options) -> int:
    from suffolk.benchmarks.agents.measure import NOTES, AgentOptions, agent_panels, agent_parts, measure_agents
    from suffolk.benchmarks.decode.options import DecodingOptions
    from suffolk.benchmarks.decode.report import PACKAGES

    outcome = options.outcome("agents")
    decoding = passed_on(options, DecodingOptions, prompts=(), limit=None, drafters=())
    settings = AgentOptions(decoding, options.files, options.limit, options.lines, options.sessions, options.turns)
    results = measure_agents(settings)
    return outcome.finish(settings, results, NOTES, PACKAGES, agent_parts(results), agent_panels(results))
