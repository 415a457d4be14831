"""Compare corpora, drafters and their settings on recorded texts, without serving.

Record texts with --record of 'suffolk worker' or 'bench decode', or --set record=FILE of
'generate'. A recording holds the users' texts, as token ids. Each drafter goes through all texts in
their order and learns from text to text, as in service. Without --costs, every step drafts and all
nodes are verified; the result is the number of accepted tokens. With --costs, the planner chooses
nodes as in service, and the result is a predicted speed-up. Drafters that read only tokens need no
model.

With --tokenizer, logs of OpenAI's API (requests with their responses) and conversations
('messages', 'conversations') are replayed too. Each answer in them is one text.

Ctrl-C ends it early with exit code 130. The report says so, and covers the drafters that have
finished all texts, with the tree sizes (--nodes) for which they have done so. If there are none, it
covers the first drafter with the texts that it has finished. The output ends with a verdict: whether
drafts help, how much, and why.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from suffolk.benchmarks.parts import exit_code, stop_lines
from suffolk.benchmarks.plot import require_plots, write_plot
from suffolk.benchmarks.replay.report import ALL, head_lines, judge, recorded_lengths, replay_panels, result_lines
from suffolk.benchmarks.replay.runs import ReplaySetting, replay_all
from suffolk.cli.drafting import DEFAULT_NODES, HYBRID, DrafterOptions, Nodes, RetrievalOptions, require_costs
from suffolk.cli.model import DeviceOptions, load_target
from suffolk.cli.options import setting
from suffolk.cli.options.setting import Assignable
from suffolk.cli.output_file import CalibrationOptions, kept_calibration, require_folder
from suffolk.cli.stores import checked_stores
from suffolk.datastore.errors import InvalidArgument, NotFound, Unsupported
from suffolk.datastore.files import write_json
from suffolk.datastore.retriever import Retriever
from suffolk.datastore.settings import REQUIRED, Within, argument, option
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.datastore.version import __version__
from suffolk.serving.decoding.drafters.registry import find, names
from suffolk.serving.decoding.drafters.retrieval.limits import Limits, require_match
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, costs_path, read_costs
from suffolk.serving.decoding.replay.read import LogReader, read_recordings
from suffolk.serving.decoding.replay.recording import Recording

if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.model.target import Target

EXAMPLES = """
suffolk worker --model MODEL_FOLDER --record day.jsonl                    records a day of traffic
suffolk replay day.jsonl --datastore code/ --nodes 8 16 64
suffolk replay day.jsonl --datastore code/ --datastore chat/ --drafter hybrid --max-match 12
suffolk replay day.jsonl --datastore code/ --drafter hybrid --calibration code.json      learns, for the service to begin with
suffolk replay requests.jsonl --tokenizer MODEL_FOLDER --datastore code/    a log of OpenAI's API
suffolk replay day.jsonl.zst --datastore code/ --costs costs.json         as 'suffolk profile --output costs.json' wrote it
suffolk replay day.jsonl --model MODEL_FOLDER --head HEAD_FOLDER --datastore code/ --costs stored
"""
DRAFTERS = tuple(name for name in names() if name not in ("prediction", "parallel-samples"))
"""Drafters to replay. Others need predicted texts or parallel requests, and recordings have neither."""
NO_COSTS = "none"
STORED = "stored"


@dataclass(frozen=True, kw_only=True)
class ReplayDrafterOptions(DrafterOptions):
    """Which drafters draft."""

    drafter: tuple[str, ...] = option(
        (),
        "a drafter to replay; may be repeated; each learns from the beginning (default: all that can run)",
        choices=DRAFTERS,
        metavar="NAME",
    )
    nodes: tuple[Nodes, ...] = option(
        (DEFAULT_NODES,), "the most nodes of a draft tree; several values are replayed in turn", several=True
    )


@dataclass(frozen=True, kw_only=True)
class CostOptions(setting.Options):
    """What passes and drafts cost."""

    GROUP = "costs"
    costs: str = option(
        NO_COSTS,
        "costs by which the planner chooses nodes: a file of 'suffolk profile', of any model and device; or 'stored', the costs "
        "that 'suffolk profile' stored for --model; with 'none', all nodes are verified",
        metavar="FILE",
    )
    draft_ms: Annotated[float, Within(0, 60_000)] | None = option(
        None,
        "with --costs: milliseconds that a draft takes (default: as measured during the replay)",
        metavar="MS",
    )


@dataclass(frozen=True, kw_only=True)
class ReplayModelOptions(DeviceOptions):
    """The model, for drafters that read its hidden states."""

    GROUP = "model"
    model: str | None = option(None, "the recorded model, for drafters that need it")


@dataclass(frozen=True, kw_only=True)
class Options(ReplayDrafterOptions, RetrievalOptions, CalibrationOptions, CostOptions, ReplayModelOptions, Assignable):
    GROUP = ""  # first in the help
    recordings: tuple[Path, ...] = argument(
        REQUIRED, ".jsonl file of recordings, or .jsonl.zst or .gz", metavar="RECORDING"
    )
    recorded_with: str | None = option(
        None,
        "replay only texts that were decoded with this drafter, or with 'none' ('bench decode' records each text once per drafter)",
        metavar="DRAFTER",
    )
    tokenizer: str | None = option(
        None,
        "model folder or hub name, whose tokenizer and chat template read logs of OpenAI's API and conversations "
        "(default: --model, if it is given)",
        metavar="TOK",
    )
    json: Path | None = option(None, "write all results as JSON", written=True)
    plot: Path | None = option(
        None, "draw M, and the speed-up with --costs, as PNG; needs the extra 'bench'", written=True
    )


def run(options: Options) -> int:
    """Replay, print and write the results. Returns the exit code."""
    limits, chosen = options.limits(), options.chosen(DRAFTERS)
    _check(options, chosen)
    require_folder("--json", options.json)
    require_folder("--plot", options.plot)
    if options.plot is not None:
        require_plots()
    recordings = _recordings(options)
    if options.costs not in (NO_COSTS, STORED):
        require_costs(Path(options.costs))
    with (
        kept_calibration(options.calibration) as calibration,
        checked_stores(
            options.datastore,
            options.deadline_ms,
            partial(_require_fit, limits=limits, recordings=recordings, model=options.tokenizer or options.model),
        ) as stores,
    ):
        target = _target(options, recordings)
        costs, origin = _costs(options.costs, target)
        draft_seconds = None if options.draft_ms is None else options.draft_ms / 1e3
        setting = ReplaySetting(
            recordings,
            stores,
            limits,
            options.drafter_config(),
            target,
            costs,
            draft_seconds,
            None if options.calibration is None else calibration,
        )
        print("\n".join(head_lines(options.recordings, recordings, origin)), file=sys.stderr)
        found, stopped = replay_all(setting, options.nodes, chosen)
    print("\n".join([*stop_lines(stopped), *result_lines(found)]))
    if options.json is not None:
        document = {
            "version": __version__,
            "recordings": list(map(str, options.recordings)),
            "model": recordings[0].model,
            "datastores": options.datastore,
            "limits": asdict(limits),
            "costs": origin or None,
            "recorded": recorded_lengths(recordings),
            "stopped": stopped,
            "verdict": asdict(judge([row for row in found if row["group"] == ALL])),
            "results": found,
        }
        write_json(options.json, document)
    if options.plot is not None:
        write_plot(options.plot, "suffolk replay", replay_panels(found))
    return exit_code(stopped)


def _check(options: Options, chosen: Sequence[str]) -> None:
    """Raise InvalidArgument if an option has no effect, or requires another option. Loads nothing."""
    if options.calibration is not None and len(chosen) * len(options.nodes) > 1:
        raise InvalidArgument(
            f"--calibration {options.calibration} belongs to one drafter; name one --drafter and one size of --nodes"
        )
    neural = [name for name in options.drafter_config().parts() if find(name).needs_target]
    if neural and options.model is None:
        raise InvalidArgument(f"drafter {neural[0]} reads the model that was recorded; add --model MODEL")
    if neural and not {HYBRID, *neural} & set(chosen):
        raise InvalidArgument(
            f"no --drafter uses {neural[0]}; leave its option out, or add --drafter {neural[0]} or --drafter hybrid"
        )
    if options.model is None and (options.dtype, options.device, options.threads) != ("auto", "auto", None):
        raise InvalidArgument("--dtype, --device and --threads need --model; leave them out, or add --model MODEL")
    if options.model is not None and not neural and options.costs != STORED:
        raise InvalidArgument(
            f"--model {options.model} has no effect without a neural drafter or --costs {STORED}; leave it out, or add --head, "
            "--draft-model or --levels"
        )
    if options.costs == STORED and options.model is None:
        raise InvalidArgument(f"--costs {STORED} needs the model whose costs are stored; add --model, or name a file")
    if options.draft_ms is not None and options.costs == NO_COSTS:
        raise InvalidArgument("--draft-ms has no effect without --costs; leave it out, or add --costs FILE")


def _recordings(options: Options) -> list[Recording]:
    name = options.tokenizer or options.model
    logs = None if name is None else LogReader(name)
    recordings = read_recordings(options.recordings, logs)
    if logs is not None and logs.left_out:
        reasons = ", ".join(f"{number} {reason}" for reason, number in logs.left_out.most_common())
        print(f"requests left out: {reasons}; the first is of {logs.first_left_out}", file=sys.stderr)
    wanted = options.recorded_with
    if wanted is None:
        return recordings
    kept = [each for each in recordings if each.drafter == wanted]
    if not kept:
        known = ", ".join(sorted({each.drafter for each in recordings}))
        raise InvalidArgument(f"--recorded-with {wanted}: no text was decoded with it; the recordings have {known}")
    return kept


def _require_fit(
    store: Retriever, name: str, *, limits: Limits, recordings: Sequence[Recording], model: str | None
) -> None:
    """Raises the errors of ``require_match``, and InvalidArgument if a text has an id outside the datastore's vocabulary.

    ``model``: the model folder or hub name that the user gave. The name of the model in a log may be no such name.
    """
    first = recordings[0]
    facts = store.info()
    if first.tokenizer is None:
        limits.require_within(int(facts["order_depth"]))
    else:
        require_match(store, name, limits, model or first.model, first.tokenizer)
    known = int(facts["vocab_size"])
    highest = max(int(max(each.prompt.max(), each.generated.max())) for each in recordings)
    if highest >= known:
        raise InvalidArgument(
            f"datastore {name} has token ids 0..{known - 1}, and a recording of model {first.model} has {highest}; build one "
            "with this model's tokenizer"
        )


def _target(options: Options, recordings: Sequence[Recording]) -> Target | None:
    """Load the model and check that it has the tokenizer and vocabulary of the recorded model. None without --model."""
    if options.model is None:
        return None
    first = recordings[0]
    own = None if first.tokenizer is None else fingerprint(load_tokenizer(options.model))
    if own != first.tokenizer:
        raise Unsupported(
            f"model {options.model} has tokenizer {str(own)[:12]}, the recordings of model {first.model} have "
            f"{str(first.tokenizer)[:12]}; name the model that was recorded"
        )
    target = load_target(options.model, options, max(len(each.prompt) + len(each.generated) for each in recordings))
    if target.vocab_size != first.vocab_size:
        raise Unsupported(
            f"model {options.model} has {target.vocab_size} ids, the recorded model {first.model} has {first.vocab_size}; name the "
            "model that was recorded"
        )
    return target


def _costs(wanted: str, target: Target | None) -> tuple[CostModel | None, str]:
    """The costs that the options select, and their origin in words."""
    if wanted == NO_COSTS:
        return None, ""
    path = Path(wanted)
    if wanted == STORED:
        assert target is not None
        path = costs_path(CostKey.of(target))
        if not path.is_file():
            raise NotFound(f"--costs {STORED}: none are stored for this model and device; 'suffolk profile' makes them")
    costs, key = read_costs(path)
    return costs, f"{path}, measured on {key['device']} in {key['dtype']}"
