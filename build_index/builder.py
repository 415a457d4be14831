"""Builds a datastore: reads, tokenizes and sorts corpora, and publishes the result. Resumes an interrupted build."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from suffolk.build_index.encode_block import EncodeSetup
from suffolk.build_index.gather import BuildState, Gatherer, OpenMaker
from suffolk.build_index.input_file import TOKEN_KINDS, require_spared
from suffolk.build_index.inputs import Inputs, find_inputs, is_table
from suffolk.build_index.journal import (
    Journal,
    is_published,
    read_journal,
    record_complete,
    totals,
    write_journal,
)
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.plan import BuildPlan, make_plan, require_disk
from suffolk.build_index.pool import segments_here
from suffolk.build_index.progress import WorkProgress
from suffolk.build_index.proof import Proof, prove, take_sample
from suffolk.build_index.report import BuildReport, count
from suffolk.build_index.skipped import SkippedLog
from suffolk.build_index.target import BuildTarget, find_target, require_mode
from suffolk.build_index.workspace import Workspace, open_workspace
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.manifest import Manifest, now, read_manifest

INLINE_BYTES = 4 << 20
"""Corpora up to this size are tokenized in the builder, because starting processes would take longer."""
NAMED_CORPORA = 100
"""The largest number of corpora that the manifest names, because the manifest's size is limited."""


def plan_build(options: BuildOptions) -> BuildPlan:
    """Estimate the tokens, time, memory and disk of a build from a sample of the corpus. Writes nothing.

    Raises:
        SuffolkError: the settings or inputs are refused; see ``build``.
    """
    inputs = find_inputs(options)
    target = find_target(options)
    require_mode(options, target)
    return make_plan(options, inputs, target, _prove(inputs, target, options), _workers(inputs, options))


def build(
    options: BuildOptions,
    progress: WorkProgress | None = None,
    open_maker: OpenMaker = segments_here,
    make_workspace: Callable[[Path], Workspace] = Workspace,
) -> BuildReport:
    """Build the datastore ``options.output`` and publish it. Readers see the old generation until the end.

    After an interruption, a call with the same settings keeps the finished segments and resumes with the next segment. The files
    have the same bytes as those of an uninterrupted build.

    Args:
        open_maker: does the work on this machine, or on a cluster if it is ``on_ray(address)``. The written bytes are the same.
        make_workspace: returns the ``Workspace`` in the folder ``options.output``.

    Raises:
        NotFound, InvalidArgument, Corruption: an input is missing, empty or wrong, or the datastore to append to is damaged; the
            message names the file.
        Unsupported: the tokenizer does not match the datastore.
        ResourceExhausted: the disk is full.
        PermissionDenied: the datastore's folder cannot be written.
        Unavailable: another process writes to the datastore, or a tokenizing process died.
    """
    clock = PartClock()
    show = progress or WorkProgress()
    inputs = find_inputs(options)
    require_spared(options.skipped, inputs.files)
    if inputs.textless:
        show.note(
            f"{count(len(inputs.textless), 'file')} of JSON records without a text: left out, or read as plain text if the name "
            f"ends with .json; the first is {inputs.textless[0]}; --text-field names the field"
        )
    if tables := [file.path for file in inputs.files if file.kind == "text" and is_table(file.path)]:
        show.note(
            f"{count(len(tables), 'table')} of CSV as one text each, with all columns; the first is {tables[0]}; write the rows as "
            "JSON lines to make each a document"
        )
    workers = _workers(inputs, options)
    with (
        open_workspace(options.output, make=make_workspace) as workspace,
        open_maker(workers) as make_segments,
    ):
        clock.lap("listing files")
        target = find_target(options)
        clock.lap("tokenizer")
        generation = target.previous.generation if target.previous else 0
        if target.previous and is_published(workspace, target.settings(options, generation), inputs, target.previous):
            show.note(f"{options.output}: an earlier run published this build already; tidying up after it")
        else:
            require_mode(options, target)
            if target.previous and options.mode == "append":
                workspace.require_whole(target.previous)
                _note_repeat(inputs, target.previous, show)
            generation += 1
        state = _resume(workspace, inputs, target, options, generation, workers, show)
        clock.lap("comparing tokenizers")
        setup = EncodeSetup(options, target.tokenizer_json, state.proof.fast, target.vocab_size, target.rules)
        keep = state.finished[-1].skipped_bytes if state.finished else 0
        with SkippedLog(options.skipped, inputs.unread, keep) as skipped:
            gatherer = Gatherer(workspace, options, target, inputs, show, skipped)
            memory = make_segments(gatherer, state, setup)
        clock.lap("journal", gatherer.read_seconds + gatherer.sort_seconds)
        if not state.finished:
            left_out = f"{count(len(inputs.files), 'file')} of {count(inputs.size, 'byte')} read, without any text"
            if gatherer.run.left_out:
                left_out = f"{count(gatherer.run.left_out, 'record')} left out, the first {gatherer.first_left_out}"
            raise InvalidArgument(
                f"corpus {' '.join(options.corpora)}: holds no tokens ({left_out}); name files that hold text"
            )
        if target.previous is None or target.previous.generation < generation:
            record_complete(workspace.journal, inputs)
            _publish(gatherer, state)
        workspace.finish(read_manifest(options.output))
        clock.lap("publishing")
    clock.lap("ending processes")
    return _report(gatherer, state, memory, clock)


def _resume(
    workspace: Workspace,
    inputs: Inputs,
    target: BuildTarget,
    options: BuildOptions,
    generation: int,
    workers: int,
    show: WorkProgress,
) -> BuildState:
    """The state of an interrupted run, or of a new build."""
    settings = target.settings(options, generation)
    journal = read_journal(workspace, settings, inputs)
    if isinstance(journal, Journal):
        if journal.finished:
            show.note(f"going on after {count(len(journal.finished), 'segment')} of an interrupted build")
        if not journal.complete:
            write_journal(workspace.journal, settings, journal.proof, journal.finished)  # drops a torn or unusable end
        return BuildState(generation, journal.proof, workers, list(journal.finished), len(journal.finished))
    if journal is not None:
        show.note(f"starting over, not going on with the interrupted build in {workspace.folder}: {journal}")
    proof = _prove(inputs, target, options)
    if workspace.keeps_segments:
        require_disk(make_plan(options, inputs, target, proof, workers), options.output)
    if target.tokenizer is not None:
        show.note(f"tokenizing by {'the fast path' if proof.fast else 'Hugging Face tokenizers'}: {proof.reason}")
    workspace.clear()
    write_journal(workspace.journal, settings, proof)
    return BuildState(generation, proof, workers, [], 0)


def _note_repeat(inputs: Inputs, base: Manifest, show: WorkProgress) -> None:
    """Show a note if an earlier build has added the same files."""
    files = inputs.identity(len(inputs.files))
    if earlier := [each for each in base.settings.get("builds", []) if each.get("files") == files]:
        show.note(
            f"the build of {earlier[-1]['built']} added these files already, and they have not changed since; now their documents "
            "are added again, and count twice unless they were deleted; to have them once, build with --replace from all corpora"
        )


def _publish(gatherer: Gatherer, state: BuildState) -> None:
    options, target = gatherer.options, gatherer.target
    base = target.previous if options.mode == "append" else None
    created = now()
    counts = totals(state.finished)
    facts = {
        "corpora": list(options.corpora[:NAMED_CORPORA]),
        "corpora_given": len(options.corpora),
        "files": gatherer.inputs.identity(len(gatherer.inputs.files)),
        "built": created,
        "documents": counts.documents,
        "text_bytes": counts.text_bytes,
        "tokenization": state.proof.reason,
    }
    manifest = Manifest(
        generation=state.generation,
        segments=(*(base.segments if base else ()), *(segment.entry for segment in state.finished)),
        vocab_size=target.vocab_size,
        order_depth=target.order_depth,
        tokenizer=target.fingerprint,
        created=created,
        settings={"builds": [*(base.settings.get("builds", []) if base else []), facts]},
        deletions=base.deletions if base else (),
        live_sequence=target.previous.live_sequence if target.previous else 0,
    )
    gatherer.workspace.publish(manifest, target.tokenizer_json if base is None else None)


def _prove(inputs: Inputs, target: BuildTarget, options: BuildOptions) -> Proof:
    if target.tokenizer is None:
        return Proof(False, "none: the corpora are tokenized already")
    sample = take_sample(inputs, options, target.rules)
    if not sample.texts:
        facts = Proof(False, "no text in the sampled files to prove the fast path on", growth=sample.growth)
        return replace(facts, tokens=sample.recorded, text_bytes=4 * sample.recorded)
    return prove(target.tokenizer, sample, options.tokenization)


def _workers(inputs: Inputs, options: BuildOptions) -> int:
    text_bytes = sum(file.size for file in inputs.files if file.kind not in TOKEN_KINDS)
    return options.workers() if text_bytes > INLINE_BYTES else 1


def _report(gatherer: Gatherer, state: BuildState, memory: int, clock: PartClock) -> BuildReport:
    counts = totals(state.finished[: state.resumed])
    counts.add(gatherer.run)  # the run's totals include blocks after the last segment, which hold no tokens
    return BuildReport(
        store=str(gatherer.options.output),
        generation=state.generation,
        segments=len(state.finished),
        documents=counts.documents,
        tokens=counts.tokens,
        described={name: counts.described.get(name, 0) for name in gatherer.options.metadata},
        text_bytes=counts.text_bytes,
        store_bytes=sum(segment.entry.bytes for segment in state.finished),
        seconds=clock.total,
        tokenize_seconds=gatherer.read_seconds,
        sort_seconds=gatherer.sort_seconds,
        other_seconds=clock.seconds,
        run_text_bytes=gatherer.run.text_bytes,
        run_tokens=gatherer.run.tokens,
        resumed_segments=state.resumed,
        peak_memory_bytes=memory,
        workers=state.workers,
        left_out=counts.left_out,
        replaced_invalid=counts.replaced,
        skipped=dict(gatherer.inputs.skipped),
        examples=gatherer.inputs.examples,
        fast=state.proof.fast,
        tokenization=state.proof.reason,
        routed=counts.routed,
        checked=counts.checked,
        differed=counts.differed,
    )


class PartClock:
    """Measures the wall seconds of each part of a build, from one lap to the next. Not thread-safe.

    Attributes:
        seconds: map from part to seconds, in the order of the parts' first laps.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = self._last = time.monotonic()

    def lap(self, part: str, without: float = 0.0) -> None:
        """Add the time since the last lap to ``part``. ``without``: seconds to subtract, because they are measured elsewhere."""
        now = time.monotonic()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last - without
        self._last = now

    @property
    def total(self) -> float:
        """Seconds until the last lap."""
        return self._last - self._began
