"""Build a datastore from corpora: text files, source trees, JSON lines or arrays, Parquet, Arrow, or
tokenized .npy and .bin files. Text and JSON may be compressed (gzip, zstd, bzip2, xz). A record
holds a text, a conversation, a logged request of OpenAI's API, or a line of a --record file.

Corpora are files, folders or quoted patterns, on disk or in storage (s3://, gs://, hf://). The
first bytes of a file tell its form. With a URL as --output, the datastore is built on disk and pushed. With --ray,
the nodes of a cluster do the work, and send the segments to that URL themselves. To continue an
interrupted build, run the same command again: it goes on after the last finished segment. An
existing datastore stays in place until the new one is complete. Running servers of the datastore
then follow within a second, and are listed.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from suffolk.build_index.builder import build, plan_build
from suffolk.build_index.options import BuildOptions, MakingOptions, ReadingOptions
from suffolk.build_index.pool import on_ray, segments_here
from suffolk.build_index.progress import show_progress
from suffolk.cli.options import setting
from suffolk.cli.options.setting import passed_on
from suffolk.cli.options.values import comma_list
from suffolk.cli.storage import push_facts
from suffolk.cli.store_lines import change_report
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.files import name_text, require_place_here
from suffolk.datastore.settings import REQUIRED, Within, argument, option
from suffolk.serving.store.storage.build import build_at
from suffolk.serving.store.storage.push import KEEP

EXAMPLES = """
suffolk build --tokenizer MODEL_FOLDER --output STORE src/ notes.txt more.jsonl.zst
suffolk build --tokenizer MODEL_FOLDER --output STORE --plan 'shards/*.jsonl.zst'
suffolk build --tokenizer MODEL_FOLDER --output STORE --id-field id --metadata license,repo.name code.jsonl.gz
suffolk build --tokenizer MODEL_FOLDER --output STORE chats.jsonl day.jsonl   conversations, and a file of 'worker --record'
suffolk build --output STORE --append new/
suffolk build --vocab-size 32000 --end-of-document 2 --output STORE tokens.bin
suffolk build --tokenizer MODEL_FOLDER --output s3://bucket/code 's3://bucket/shards/*.jsonl.zst'
suffolk build --tokenizer MODEL_FOLDER --output STORE --ray 10.0.0.1:6379 's3://bucket/shards/*.jsonl.zst'"""


@dataclass(frozen=True, kw_only=True)
class ModeOptions(setting.Options):
    GROUP = "if STORE holds a datastore already"
    append: bool = option(False, "add the corpora to the existing datastore", excludes=("replace",))
    replace: bool = option(False, "replace the existing datastore, once the new one is complete")


@dataclass(frozen=True, kw_only=True)
class StorageOptions(setting.Options):
    GROUP = "if STORE is a URL"
    work_folder: Path | None = option(
        None,
        "folder of the datastore on disk; with --ray, of the journal alone (default: a temporary one); an interrupted build goes "
        "on there",
        metavar="DIR",
    )
    keep: Annotated[int, Within(1, 1000)] = option(KEEP, "number of newest generations that stay at the URL")


@dataclass(frozen=True, kw_only=True)
class ListOptions(setting.Options):
    GROUP = "reading"
    metadata: str | None = option(
        None, "fields or columns to keep with each document, such as license,repo.name", metavar="LIST", blank=True
    )
    extensions: str | None = option(
        None,
        "extensions of the files to read from folders, such as .py,.md (default: all text files)",
        metavar="LIST",
        blank=True,
    )


@dataclass(frozen=True, kw_only=True)
class BuildPlaceOptions(setting.Options):
    GROUP = "making"
    ray: str | None = option(
        None,
        "build on a Ray cluster: HOST:PORT, 'auto' for the cluster of this machine, or 'local' to start a cluster here",
        metavar="ADDRESS",
        excludes=("plan",),
    )


@dataclass(frozen=True, kw_only=True)
class Options(ModeOptions, StorageOptions, ReadingOptions, ListOptions, MakingOptions, BuildPlaceOptions):
    GROUP = ""  # first in the help
    corpora: tuple[str, ...] = argument(REQUIRED, "file, folder or pattern to read", metavar="CORPUS", blank=True)
    output: str = option(REQUIRED, "folder of the datastore, or its URL in storage", metavar="STORE")
    tokenizer: str | None = option(None, "Hugging Face folder, tokenizer.json or hub name", metavar="TOK")
    plan: bool = option(False, "print the time, memory and disk that the build will take, and stop")
    json: bool = option(False, "print the plan or the summary as JSON")


def run(options: Options) -> None:
    build_options = _build_options(options)
    if options.plan and options.append and is_storage_url(options.output):
        raise InvalidArgument(
            Field("plan"), f": {options.output} is not on disk; pull it, and give that folder as --output"
        )
    if options.plan:
        plan = plan_build(build_options)
        print(json.dumps(asdict(plan)) if options.json else "\n".join(plan.lines()))
    elif is_storage_url(options.output):
        _build_at(options, build_options)
    else:
        with show_progress() as progress:
            report = build(build_options, progress, segments_here if options.ray is None else on_ray(options.ray))
        print(change_report(report.to_dict(), report.lines(), build_options.output, True, options.json))


def _build_at(options: Options, build_options: BuildOptions) -> None:
    with show_progress() as progress:
        report, pushed = build_at(
            options.output, build_options, options.work_folder, options.keep, progress, options.ray
        )
    if options.json:
        print(json.dumps(report.to_dict() | {"push": asdict(pushed)}))
    else:
        print("\n".join([*report.lines(), *push_facts(pushed)]))


def _names(option: str, text: str | None, example: str) -> tuple[str, ...]:
    """The parts of a list. Raises InvalidArgument if the list has no parts."""
    if text is None:
        return ()
    parts = comma_list(name_text(text))
    if not parts:
        raise InvalidArgument(f"{option} {text!r} names nothing; give a list such as {example}, or leave it out")
    return parts


def _folder(options: Options) -> Path:
    """The folder in which the datastore is built. Raises InvalidArgument for a given option that applies only to URLs."""
    if is_storage_url(options.output):
        return options.work_folder or Path(tempfile.gettempdir(), "suffolk-build")
    if useless := {"work_folder", "keep"} & set(options.given):
        name = min(useless).replace("_", "-")
        raise InvalidArgument(f"--{name} has no effect: --output {options.output} is not a URL; leave it out")
    require_place_here(options.output, "output")
    return Path(options.output)


def _build_options(options: Options) -> BuildOptions:
    return passed_on(
        options,
        BuildOptions,
        output=_folder(options),
        text_field=name_text(options.text_field),
        id_field=None if options.id_field is None else name_text(options.id_field),
        mode="append" if options.append else "replace" if options.replace else "new",
        metadata=_names("--metadata", options.metadata, "license,repo.name"),
        extensions=_names("--extensions", options.extensions, ".py,.md"),
    )
