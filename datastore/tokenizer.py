"""Tokenizers by name: load one, know its size, and tell whether two are the same."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from datastore.errors import Corruption, NotFound

TOKENIZER_FILE = "tokenizer.json"
HUB_TIMEOUT_S = 10.0
SLOW_FILES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json", "vocab.txt", "tekken.json")


def load_tokenizer(name_or_path: str | Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder, a ``tokenizer.json``, or a hub name; cutting and padding are off.

    Raises:
        NotFound: no such file or folder, none inside the folder, or the hub has none or cannot be reached.
        Corruption: the file is there but is no tokenizer.
    """
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        tokenizer = _load_folder(path)
    elif path.is_file():
        tokenizer = _load_file(path)
    else:
        tokenizer = _load_hub(str(name_or_path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None):
        tokenizer.model.dropout = None
    return tokenizer


def vocab_size(tokenizer: Tokenizer) -> int:
    """The highest token id plus one, added tokens included (ids may have holes, so this is no count)."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def fingerprint(tokenizer: Tokenizer) -> str:
    """SHA-256 (hex) of what gives ids their meaning: vocabulary, merges, scores and added tokens with their ids.

    Two savings of one tokenizer by different tool versions agree, since notation, decoders and templates are left out.
    """
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
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


def _feed(digest: Any, *parts: str) -> None:
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4, "little") + data)  # lengths keep ("ab", "c") apart from ("a", "bc")


def _load_file(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception for everything
        raise Corruption(
            f"tokenizer {path}: not a tokenizer.json ({error}); give a Hugging Face folder or its tokenizer.json"
        ) from error


def _load_folder(path: Path) -> Tokenizer:
    file = path / TOKENIZER_FILE
    if file.is_file():
        return _load_file(file)
    if not any((path / name).is_file() for name in SLOW_FILES):
        raise NotFound(f"tokenizer {path}: the folder has no {TOKENIZER_FILE}; give the model folder that holds it")
    return _convert(str(path))


def _load_hub(name: str) -> Tokenizer:
    if name.count("/") > 1 or name.startswith((".", "/", "~")) or name.endswith(".json"):
        raise NotFound(
            f"tokenizer {name}: no such file or folder; give a Hugging Face folder, a tokenizer.json or a hub name"
        )
    from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache

    cached = try_to_load_from_cache(name, TOKENIZER_FILE)
    if isinstance(cached, str):
        return _load_file(Path(cached))
    try:
        files = {entry.rfilename for entry in HfApi().model_info(name, timeout=HUB_TIMEOUT_S).siblings or ()}
        file = hf_hub_download(name, TOKENIZER_FILE) if TOKENIZER_FILE in files else None
    except Exception as error:  # the hub client lets its HTTP library's own errors through
        reason = " ".join(str(error).split()) or type(error).__name__
        raise NotFound(
            f"tokenizer {name}: no file or folder of that name, and the hub did not give it ({reason[:160]}); "
            "give the path of a Hugging Face folder or tokenizer.json"
        ) from error
    return _load_file(Path(file)) if file is not None else _convert(name)


def _convert(name: str) -> Tokenizer:
    """A folder or hub name with a slow (sentencepiece) tokenizer, through transformers (slow to import)."""
    from transformers import AutoTokenizer

    try:
        backend = AutoTokenizer.from_pretrained(name).backend_tokenizer
    except Exception as error:  # converters raise whatever their format's parser raises
        reason = " ".join(str(error).split())[:160]
        raise NotFound(
            f"tokenizer {name}: no {TOKENIZER_FILE}, and its slow tokenizer cannot be converted ({reason}); "
            f"save it with save_pretrained to get a {TOKENIZER_FILE}"
        ) from error
    if not isinstance(backend, Tokenizer):
        raise NotFound(f"tokenizer {name}: transformers has no fast form of it; save one as {TOKENIZER_FILE}")
    return backend
