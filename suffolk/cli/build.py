"""Build a datastore from corpora: text files, source trees, .jsonl[.gz|.zst], Parquet, or tokenized .npy and .bin files.

Corpora are files, folders or quoted patterns, recognised by their names. A build that was interrupted goes on with the segment it
was at when the same command is run again; the datastore that was there before stays in place until the new one is complete.

examples:
  suffolk build --tokenizer MODEL_FOLDER --output STORE src/ notes.txt more.jsonl.zst
  suffolk build --tokenizer MODEL_FOLDER --output STORE --plan 'shards/*.jsonl.zst'
  suffolk build --tokenizer MODEL_FOLDER --output STORE --id-field id --metadata license,repo.name code.jsonl.gz
  suffolk build --output STORE --append new/
  suffolk build --vocab-size 32000 --end-of-document 2 --output STORE tokens.bin
"""

from __future__ import annotations

import argparse
import json

from suffolk.build_index.builder import build, plan_build
from suffolk.build_index.options import (
    DEFAULT_ORDER_DEPTH,
    DEFAULT_SEGMENT_TOKENS,
    TOKEN_FORMATS,
    TOKENIZATIONS,
    BuildOptions,
)
from suffolk.build_index.progress import show_progress
from suffolk.cli.filled import filled, filled_path
from suffolk.datastore.errors import InvalidArgument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``suffolk build``."""
    parser.add_argument("corpora", nargs="+", metavar="CORPUS", help="file, folder or pattern to read")
    parser.add_argument("--output", required=True, type=filled_path, metavar="STORE", help="folder of the datastore")
    parser.add_argument(
        "--tokenizer", type=filled, metavar="TOK", help="Hugging Face folder, tokenizer.json or hub name"
    )
    parser.add_argument("--plan", action="store_true", help="say what the build will take, and stop")
    parser.add_argument("--json", action="store_true", help="print the plan or the summary as JSON")
    _add_mode(parser.add_argument_group("if STORE holds a datastore already"))
    _add_reading(parser.add_argument_group("reading"))
    _add_making(parser.add_argument_group("making"))


def run(args: argparse.Namespace) -> int:
    """Build or plan; returns the exit code."""
    options = _options(args)
    if args.plan:
        plan = plan_build(options)
        print(json.dumps(plan.to_dict()) if args.json else "\n".join(plan.lines()))
        return 0
    with show_progress() as progress:
        report = build(options, progress)
    print(json.dumps(report.to_dict()) if args.json else "\n".join(report.lines()))
    return 0


def _add_mode(group: argparse._ArgumentGroup) -> None:
    exclusive = group.add_mutually_exclusive_group()
    exclusive.add_argument("--append", action="store_true", help="add the corpora to it")
    exclusive.add_argument(
        "--replace", action="store_true", help="put the new datastore in its place once it is complete"
    )


def _add_reading(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--text-field", default="text", metavar="NAME", help="field or column with the text (default: text)"
    )
    group.add_argument("--id-field", metavar="NAME", help="field or column that names a document; dots go into objects")
    group.add_argument(
        "--metadata", metavar="LIST", help="fields or columns to keep with each document, such as license,repo.name"
    )
    group.add_argument(
        "--extensions", metavar="LIST", help="take only these from folders, such as .py,.md (default: all text)"
    )
    group.add_argument("--token-format", choices=TOKEN_FORMATS, help="ids in .bin files (default: by vocabulary size)")
    group.add_argument("--end-of-document", type=int, metavar="ID", help="id that ends documents in tokenized corpora")
    group.add_argument(
        "--vocab-size", type=int, metavar="N", help="number of ids, for tokenized corpora without --tokenizer"
    )


def _add_making(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--tokenization",
        choices=TOKENIZATIONS,
        default="auto",
        help="auto: the fast path where it is proven equal; exact: Hugging Face tokenizers alone (default: auto)",
    )
    group.add_argument(
        "--segment-tokens",
        type=int,
        default=DEFAULT_SEGMENT_TOKENS,
        metavar="N",
        help="tokens in a segment; bounds memory (default: %(default)s)",
    )
    group.add_argument(
        "--order-depth", type=int, metavar="N", help=f"tokens to sort by (default: {DEFAULT_ORDER_DEPTH})"
    )
    group.add_argument(
        "--threads", type=int, default=0, metavar="N", help="processes and threads; 0: every core (default: 0)"
    )


def _names(option: str, text: str | None, example: str) -> tuple[str, ...]:
    """The parts of a list. Raises InvalidArgument: it has none."""
    if text is None:
        return ()
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise InvalidArgument(f"{option} {text!r} names nothing; give a list such as {example}, or leave it out")
    return parts


def _options(args: argparse.Namespace) -> BuildOptions:
    return BuildOptions(
        corpora=tuple(args.corpora),
        output=args.output,
        tokenizer=args.tokenizer,
        mode="append" if args.append else "replace" if args.replace else "new",
        text_field=args.text_field,
        id_field=args.id_field,
        metadata=_names("--metadata", args.metadata, "license,repo.name"),
        extensions=_names("--extensions", args.extensions, ".py,.md"),
        token_format=args.token_format,
        end_of_document=args.end_of_document,
        vocab_size=args.vocab_size,
        segment_tokens=args.segment_tokens,
        order_depth=args.order_depth,
        tokenization=args.tokenization,
        threads=args.threads,
    )
