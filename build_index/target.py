"""Determines the output of a build before the build starts: datastore, tokenizer and vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from suffolk.build_index.chat_template import ChatTemplate, find_chat_template
from suffolk.build_index.options import DEFAULT_ORDER_DEPTH, BuildOptions
from suffolk.build_index.records import RecordRules, short_mark
from suffolk.datastore.errors import Field, InvalidArgument, NotFound, Unsupported
from suffolk.datastore.manifest import MANIFEST_NAME, Manifest, read_manifest, tokenizer_name
from suffolk.datastore.segment import token_dtype
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer, vocab_size


@dataclass(frozen=True, slots=True)
class BuildTarget:
    """The datastore that a build makes or extends.

    Attributes:
        previous: the published generation; None if there is none.
        tokenizer: None if all corpora are tokenized and no tokenizer is given.
        tokenizer_json: the tokenizer as the content of a ``tokenizer.json``.
        fingerprint: fingerprint of the tokenizer, 64 hex digits; None without a tokenizer.
        vocab_size: ids are below it.
        order_depth: number of tokens by which suffixes are sorted.
        token_width: width of the ids in ``.bin`` corpora, "u16" or "u32".
        template: the chat template of the tokenizer that the options name; None if they name none, or it has no template.
    """

    previous: Manifest | None
    tokenizer: Tokenizer | None
    tokenizer_json: str | None
    fingerprint: str | None
    vocab_size: int
    order_depth: int
    token_width: str
    template: ChatTemplate | None = None

    @property
    def rules(self) -> RecordRules:
        """The rules for reading conversations and recorded tokens."""
        return RecordRules(self.template, self.fingerprint, self.vocab_size)

    def settings(self, options: BuildOptions, generation: int) -> dict[str, Any]:
        """The settings that the content of segments depends on, and the generation.

        If one changes, except the generation, an interrupted build starts again.
        """
        return {
            "generation": generation,
            "mode": options.mode,
            "tokenizer": self.fingerprint,
            "vocab_size": self.vocab_size,
            "order_depth": self.order_depth,
            "segment_tokens": options.segment_tokens,
            "text_field": options.text_field,
            "id_field": options.id_field,
            "records": options.records,
            "template": None if self.template is None else self.template.digest,
            "metadata": list(options.metadata),
            "token_width": self.token_width,
            "end_of_document": options.end_of_document,
            "tokenization": options.tokenization,
            "on_error": options.on_error,
        }


def find_target(options: BuildOptions) -> BuildTarget:
    """The target of a build, with a tokenizer that fits the target.

    Raises:
        NotFound: the tokenizer, or the datastore to append to, does not exist.
        Corruption: one of them is damaged.
        Unsupported: tokenizer, vocabulary or order depth differ from the datastore to append to.
        InvalidArgument: neither a tokenizer nor a vocabulary size is given, or they contradict each other.
    """
    store = options.output
    previous = read_manifest(store) if (store / MANIFEST_NAME).exists() else None
    if options.mode == "append" and previous is None:
        raise NotFound(f"{store}: no datastore to append to; leave --append out to build a new one")
    base = previous if options.mode == "append" else None
    tokenizer, saved = _find_tokenizer(options, base), None
    if tokenizer is None:
        size, mark = options.vocab_size or (base.vocab_size if base else 0), base.tokenizer if base else None
        if not size:
            raise InvalidArgument(
                Field("tokenizer"), ": none given; name one with --tokenizer, or for tokenized corpora the --vocab-size"
            )
    else:
        saved = tokenizer.to_str()
        size, mark = vocab_size(tokenizer), fingerprint(tokenizer, saved)
        if options.vocab_size is not None and options.vocab_size < size:
            raise InvalidArgument(
                f"vocab size: {options.vocab_size} is below the tokenizer's {size}; leave --vocab-size out"
            )
        size = max(size, options.vocab_size or 0, base.vocab_size if base else 0)
    if options.end_of_document is not None and options.end_of_document >= size:
        raise InvalidArgument(
            f"end of document: {options.end_of_document} is no id of the vocabulary of {size}; give the id that ends documents"
        )
    depth = options.order_depth or (base.order_depth if base else DEFAULT_ORDER_DEPTH)
    if base is not None:
        _require_fit(options, base, size, mark, depth)
    width = options.token_format or ("u16" if token_dtype(size).itemsize == 2 else "u32")
    template = None if options.tokenizer is None else find_chat_template(options.tokenizer)
    return BuildTarget(previous, tokenizer, saved, mark, size, depth, width, template)


def require_mode(options: BuildOptions, target: BuildTarget) -> None:
    """Refuse to build over an existing datastore, unless ``options`` say to append or replace.

    Raises:
        InvalidArgument: there is a datastore, and the mode is "new".
    """
    if options.mode == "new" and target.previous is not None:
        raise InvalidArgument(
            f"{options.output}: holds a datastore already (generation {target.previous.generation}); give --append to add "
            "to it, --replace to put a new one in its place, or another --output"
        )


def _find_tokenizer(options: BuildOptions, base: Manifest | None) -> Tokenizer | None:
    if options.tokenizer is not None:
        return load_tokenizer(options.tokenizer)
    if base is None or base.tokenizer is None:
        return None
    path = options.output / tokenizer_name(base.tokenizer)
    return load_tokenizer(path) if path.is_file() else None


def _require_fit(options: BuildOptions, base: Manifest, size: int, mark: str | None, depth: int) -> None:
    if mark != base.tokenizer:
        raise Unsupported(
            f"tokenizer {options.tokenizer}: not the one of {options.output} (fingerprint {short_mark(mark)}, the datastore has "
            f"{short_mark(base.tokenizer)}); leave --tokenizer out to use the datastore's own, or build another datastore"
        )
    for name, given, there in (("vocab size", size, base.vocab_size), ("order depth", depth, base.order_depth)):
        if given != there:
            raise Unsupported(f"{name}: {given} differs from the {there} of {options.output}; build another datastore")
