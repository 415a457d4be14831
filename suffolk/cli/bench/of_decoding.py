"""Measurements of decoding, beside 'decode': batches, transports, and tasks of several kinds."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.benchmarks.decode.options import AnsweredPrompts, DecodingOptions, Epochs
from suffolk.benchmarks.prediction.edits import AgentTasks, PredictedEdits, PredictionOptions, source_files
from suffolk.benchmarks.prompts import load_prompts
from suffolk.cli.bench.decode import DecodeModelOptions, DecodeOptions
from suffolk.cli.bench.report_options import ReportOptions
from suffolk.cli.drafting import PlannerOptions
from suffolk.cli.options.setting import Assignable, passed_on
from suffolk.cli.options.values import comma_list
from suffolk.datastore.settings import Count, option


@dataclass(frozen=True, kw_only=True)
class BenchBatch(DecodeOptions, Assignable):
    """Measure the engine's throughput by the number of requests at once, with and without drafts.

    Ctrl-C ends it early with exit code 130. The report then covers the batch sizes that every drafter
    has finished, and says so.
    """

    EXAMPLES = """
suffolk bench batch --model MODEL_FOLDER --datastore STORE --prompts prompts/ --batches 1 2 4 8 16 --json batch.json
suffolk bench batch --model MODEL_FOLDER --head HEAD_FOLDER --prompts prompts/ --json batch.json
suffolk bench batch --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --prompts prompts/ --json batch.json"""

    batches: tuple[Count, ...] = option((1, 2, 4, 8, 16), "requests at once", several=True, group="prompts")

    def run(self) -> int:
        outcome = self.outcome("batch")
        self.require_prompts()
        from suffolk.benchmarks.batch import measure

        settings, batches = self.decoding(), list(self.batches)
        return outcome.finish(settings, measure.measure_batches(settings, batches), measure, batches=batches)


@dataclass(frozen=True, kw_only=True)
class BenchWorker(DecodeOptions, Assignable):
    """Measure what gRPC and HTTP (streamed and whole answers) cost, compared to calls in the worker's
    process.

    Ctrl-C ends it early with exit code 130. The report then covers the prompts that every transport
    has answered, and says so.
    """

    EXAMPLES = """
suffolk bench worker --model MODEL_FOLDER --prompts prompts/ --limit 4 --drafters none --json worker.json
suffolk bench worker --model MODEL_FOLDER --datastore STORE --prompts prompts/ --streams 1 8 --drafters none,hybrid"""

    streams: tuple[Count, ...] = option((1, 8, 32), "requests at once", several=True, group="prompts")

    def run(self) -> int:
        outcome = self.outcome("worker")
        self.require_prompts()
        from suffolk.benchmarks.worker import measure

        settings, streams = self.decoding(), list(self.streams)
        return outcome.finish(settings, measure.measure_worker(settings, streams), measure, streams=streams)


@dataclass(frozen=True, kw_only=True)
class BenchPrediction(DecodeModelOptions, PlannerOptions, ReportOptions, PredictedEdits):
    """Measure the speed-up that predicted texts give, for several shares of changed lines.

    The model edits source files. A prediction is the model's own plain answer with a share of its lines
    replaced. Ctrl-C ends it early with exit code 130. The report then covers the finished prompts, and
    says so.
    """

    EXAMPLES = """
suffolk bench prediction --model MODEL_FOLDER --files src/ --limit 8 --json prediction.json
suffolk bench prediction --model MODEL_FOLDER --files src/ --drafters prediction --shares 0 1 --json prediction.json"""

    max_new_tokens: Count = option(400, "longest answer, in tokens")
    drafters: str = option("prediction,prompt-lookup", "separated by commas", metavar="LIST")

    def run(self) -> int:
        outcome = self.outcome("prediction")
        source_files(self.files, self.limit, self.lines, seed=0)
        from suffolk.benchmarks.prediction import measure

        drafters = comma_list(self.drafters)
        decoding = passed_on(self, DecodingOptions, prompts=(), limit=None, drafters=drafters)
        settings = passed_on(self, PredictionOptions, decoding=decoding)
        return outcome.finish(settings, measure.measure_predictions(settings), measure)


@dataclass(frozen=True, kw_only=True)
class BenchRollouts(DecodeModelOptions, AnsweredPrompts, PlannerOptions, ReportOptions, Epochs):
    """Measure drafts from earlier answers to the same prompts, as in the epochs of reinforcement learning.

    Each epoch samples several answers to every prompt. The methods differ in what they keep of the answers
    so far. Ctrl-C ends it early with exit code 130. The report then covers the finished prompts, and says
    so.
    """

    EXAMPLES = """
suffolk bench rollouts --model MODEL_FOLDER --prompts reasoning.jsonl --limit 8 --json rollouts.json
suffolk bench rollouts --model MODEL_FOLDER --prompts reasoning.jsonl --temperatures 1 0.7 --json rollouts.json
suffolk bench rollouts --model MODEL_FOLDER --earlier-model OTHER_FOLDER --prompts reasoning.jsonl --json rollouts.json"""

    methods: str = option(
        "prompt-lookup,prompt trees,live store,hybrid",
        "names, separated by commas; 'arctic' needs the package arctic-inference",
        metavar="LIST",
        group="drafting",
    )

    def run(self) -> int:
        outcome = self.outcome("rollouts")
        self.require_prompts()
        from suffolk.benchmarks.rollouts import measure
        from suffolk.benchmarks.rollouts.answers import RolloutOptions

        decoding = passed_on(self, DecodingOptions, drafters=())
        settings = passed_on(self, RolloutOptions, decoding=decoding, methods=comma_list(self.methods))
        return outcome.finish(settings, measure.measure_rollouts(settings), measure)


@dataclass(frozen=True, kw_only=True)
class BenchAgents(DecodeModelOptions, PlannerOptions, ReportOptions, AgentTasks):
    """Measure edits of the same files in several sessions, with and without a store of earlier answers.

    In each turn the model reads a file, makes one edit, and prints the whole file. Ctrl-C ends it early
    with exit code 130. The report then covers the finished turns, and says so.
    """

    EXAMPLES = """
suffolk bench agents --model MODEL_FOLDER --files src/ --json agents.json
suffolk bench agents --model MODEL_FOLDER --files src/ --sessions 4 --temperature 0.7 --json agents.json
suffolk bench agents --model MODEL_FOLDER --tasks edits.jsonl --max-new-tokens 1200 --json agents.json"""

    methods: str = option(
        "prompt-lookup,prediction,own store,shared store",
        "names, separated by commas; 'arctic' needs the package arctic-inference",
        metavar="LIST",
        group="drafting",
    )
    max_new_tokens: Count = option(320, "longest answer, in tokens")
    temperature: float = option(0.0, "0: greedy; then sessions of one file repeat each other (default: 0)", metavar="T")

    def run(self) -> int:
        outcome = self.outcome("agents")
        if self.files:
            source_files(self.files, self.limit, self.lines, seed=0)
        elif self.tasks:
            load_prompts(self.tasks, "chat", self.limit, seed=0, noun="tasks")
        from suffolk.benchmarks.agents import measure

        decoding = passed_on(self, DecodingOptions, prompts=(), limit=None, drafters=())
        settings = passed_on(self, measure.AgentOptions, decoding=decoding, methods=comma_list(self.methods))
        return outcome.finish(settings, measure.measure_agents(settings), measure)


COMMANDS = {
    "batch": BenchBatch,
    "worker": BenchWorker,
    "prediction": BenchPrediction,
    "rollouts": BenchRollouts,
    "agents": BenchAgents,
}
