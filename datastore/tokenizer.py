"""Loads tokenizers by name, compares them by fingerprint, and gives the texts of single tokens."""

from __future__ import annotations

import hashlib
import json
from codecs import BOM_UTF8
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from suffolk.datastore.context_query import Tokens
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Corruption, NotFound, SuffolkError, Unsupported
from suffolk.datastore.files import expand
from suffolk.datastore.hub import adapter_base, cached_file, download, is_path, list_files, short_reason
from suffolk.datastore.manifest import tokenizer_name
from suffolk.datastore.retriever import Retriever

TOKENIZER_FILE = "tokenizer.json"
SLOW_FILES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json", "vocab.txt", "tekken.json")


def load_tokenizer(name_or_path: str | Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder, a ``tokenizer.json``, or a hub name; truncation and padding are off.

    If the folder of a LoRA adapter has no tokenizer, the tokenizer of its base model is loaded.

    Raises:
        NotFound: no file or folder has the name, the folder has no tokenizer, or the hub has no tokenizer or cannot be reached.
        Corruption: the file is no tokenizer, or the adapter's configuration is damaged.
        Unsupported: the tokenizer has another form, and transformers, which converts it, is not installed.
    """
    path = expand(name_or_path)
    if path.is_dir():
        tokenizer = _load_folder(path)
    elif path.is_file():
        tokenizer = _load_file(path)
    else:
        tokenizer = _load_hub(str(name_or_path))
    return _deterministic(tokenizer)


def read_stored_tokenizer(store: Path, mark: str | None) -> Tokenizer | None:
    """The tokenizer with the fingerprint ``mark`` in the folder of a datastore; None for no fingerprint.

    Raises:
        Corruption: the tokenizer's file is missing or damaged, or holds another tokenizer.
    """
    if mark is None:
        return None
    path = store / tokenizer_name(mark)
    problem = "is missing"
    if path.is_file():
        try:
            tokenizer = load_tokenizer(path)
            if fingerprint(tokenizer) == mark:
                return tokenizer
            problem = "is not the one that the datastore was built with"
        except SuffolkError:
            problem = "is damaged"
    raise Corruption(f"{path} {problem}; copy that tokenizer's tokenizer.json there")


def parse_tokenizer(content: bytes) -> Tokenizer:
    """The tokenizer from the content of a ``tokenizer.json``; truncation and padding are off.

    Raises:
        Corruption: the content is no tokenizer.
    """
    try:
        return _deterministic(Tokenizer.from_buffer(content))
    except ValueError as error:
        raise Corruption(f"not a tokenizer.json ({short_reason(error)})") from error


def vocab_size(tokenizer: Tokenizer) -> int:
    """The highest token id plus one, added tokens included. There may be fewer tokens, because ids may have gaps."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def fingerprint(tokenizer: Tokenizer, saved: str | None = None) -> str:
    """SHA-256 (hex) of vocabulary, merges, scores and added tokens with their ids.

    Notation, decoders and templates are left out. So copies saved by different library versions have the same fingerprint.

    Args:
        saved: what ``to_str`` returned, if it was called already.
    """
    model: dict[str, Any] = json.loads(tokenizer.to_str() if saved is None else saved)["model"]
    added = tokenizer.get_added_tokens_decoder()
    digest = hashlib.sha256()
    _feed(digest, "model", str(model.get("type")))
    for token, token_id in sorted(
        tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: (item[1], item[0])
    ):
        _feed(digest, "id", str(token_id), token)
    for merge in model.get("merges") or ():
        _feed(digest, "merge", *(merge.split(" ") if isinstance(merge, str) else merge))
    if isinstance(model.get("vocab"), list):  # Unigram: pieces with log probabilities
        for piece, score in model["vocab"]:
            _feed(digest, "score", piece, repr(float(score)))
    for token_id in sorted(added):
        _feed(digest, "added", str(token_id), added[token_id].content)
    return digest.hexdigest()


def _deterministic(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None):
        tokenizer.model.dropout = None
    return tokenizer


def _feed(digest: Any, *parts: str) -> None:
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4, "little") + data)  # the length distinguishes ("ab", "c") from ("a", "bc")


def _load_file(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_buffer(
            path.read_bytes().removeprefix(BOM_UTF8)
        )  # the library's own reader takes no path that is not UTF-8
    except Exception as error:  # the library raises plain Exception for every error
        raise Corruption(
            f"tokenizer {path}: not a tokenizer.json ({error}); give a Hugging Face folder or its tokenizer.json"
        ) from error


def _load_folder(path: Path) -> Tokenizer:
    file = path / TOKENIZER_FILE
    if file.is_file():
        return _load_file(file)
    base = adapter_base(path)
    if base is not None:
        return load_tokenizer(base)
    if not any((path / name).is_file() for name in SLOW_FILES):
        raise NotFound(f"tokenizer {path}: the folder has no {TOKENIZER_FILE}; give the model folder that holds it")
    return _convert(str(path))


def _load_hub(name: str) -> Tokenizer:
    if is_path(name) or name.endswith(".json"):
        raise NotFound(
            f"tokenizer {name}: no such file or folder; give a Hugging Face folder, a tokenizer.json or a hub name"
        )
    cached = cached_file(name, TOKENIZER_FILE)
    if cached is not None:
        return _load_file(Path(cached))
    try:
        fetched = download(name, TOKENIZER_FILE) if TOKENIZER_FILE in list_files(name) else None
    except NotFound as error:
        raise NotFound(f"tokenizer {error}; give the path of a Hugging Face folder or tokenizer.json") from error
    return _convert(name) if fetched is None else _load_file(Path(fetched))


def _convert(name: str) -> Tokenizer:
    """The slow (sentencepiece) tokenizer of a folder or hub name, converted by transformers, which is slow to import."""
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"tokenizer {name}: it has no {TOKENIZER_FILE}, and converting another form needs transformers; "
            "pip install 'suffolk[worker]'"
        ) from error
    try:
        backend = AutoTokenizer.from_pretrained(name).backend_tokenizer
    except Exception as error:  # converters raise whatever their format's parser raises
        raise NotFound(
            f"tokenizer {name}: no {TOKENIZER_FILE}, and its slow tokenizer cannot be converted ({short_reason(error)}); "
            f"save it with save_pretrained to get a {TOKENIZER_FILE}"
        ) from error
    if not isinstance(backend, Tokenizer):
        raise NotFound(f"tokenizer {name}: transformers has no fast form of it; save one as {TOKENIZER_FILE}")
    return backend


def token_texts(store: Retriever, ids: Tokens) -> list[str]:
    """The text of each token of ``ids``. If a character has several tokens, the last token shows it, and the others show
    U+FFFD."""
    return _texts(store, [], [int(token) for token in ids], range(-1, len(ids) - 1))


def node_texts(store: Retriever, context: Tokens, tree: DraftTree) -> list[str]:
    """The text of each node of a draft ``tree`` after ``context``; see ``token_texts``."""
    last = [int(token) for token in context[-1:]]  # some decoders drop the space before the first token
    return _texts(store, last, tree.tokens.tolist(), tree.parents.tolist())


def window_texts(store: Retriever, place: Occurrence, pattern: int) -> tuple[str, str, str]:
    """Three texts: before an occurrence, of its first ``pattern`` tokens, and after these."""
    before, tokens = place.before.tolist(), place.tokens.tolist()
    start = len(_whole(store.decode(before)))
    end = len(_whole(store.decode(before + tokens[:pattern])))
    text = store.decode(before + tokens)
    return text[:start], text[start:end], text[end:]


def _texts(store: Retriever, before: list[int], tokens: Sequence[int], parents: Sequence[int]) -> list[str]:
    paths: list[list[int]] = []
    ends: list[int] = []  # characters of the whole text up to each token
    texts: list[str] = []
    start = len(_whole(store.decode(before)))
    for token, parent in zip(tokens, parents, strict=True):
        paths.append([*(before if parent < 0 else paths[parent]), token])
        text = store.decode(paths[-1])
        ends.append(len(_whole(text)))
        texts.append(text[start if parent < 0 else ends[parent] :])
    return texts


def _whole(text: str) -> str:
    """``text`` without the incomplete character at its end."""
    return text.rstrip("\ufffd")
