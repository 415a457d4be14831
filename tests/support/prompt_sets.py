"""Two sets of prompts, with models and datastores to decode them with."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.building import write_jsonl
from tests.support.forked import suffolk
from tests.support.tiny_models import save_tiny

TEXTS = [f"what number {number} says is said again: number {number} says what is said" for number in range(12)]


def make_prompt_sets(path: Path) -> Path:
    """Fill ``path`` with models, prompts and datastores; return ``path``.

    The models are ``model`` and the smaller ``small``. The prompts form the sets a and b. The datastore ``store`` holds
    texts like the prompts, ``other`` holds unrelated ones.
    """
    save_tiny(path / "model")
    save_tiny(path / "small", num_hidden_layers=1)
    for name, texts in (("store", TEXTS), ("other", ["xyzzy " * 40])):
        corpus = write_jsonl(path / f"{name}.jsonl", texts)
        done = suffolk("build", "--tokenizer", path / "model", "--output", path / name, corpus)
        assert done.returncode == 0, done.stderr
    for group in ("a", "b"):
        rows = [
            {"id": f"{group}/{number}", "set": group, "prompt": f"{group} {TEXTS[number][:30]}"} for number in range(3)
        ]
        (path / f"{group}.prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
