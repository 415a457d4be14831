"""A model folder whose answer to PROMPT is on file: datastores with it, and with hostile text behind its beginning."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, save_costs
from suffolk.serving.decoding.engine.loop.prompt import encode_chat
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import alone
from tests.support.stores import make_text_store
from tests.support.tiny_models import save_tiny, tiny_tokenizer
from tests.support.worker_server import TEMPLATE

REAL = os.environ.get("SUFFOLK_TEST_MODEL", "")
"""Folder of an instruction-tuned model, to take it in place of a tiny one."""
PROMPT = "Write a class Stack."
TOKENS = 48
HOSTILE_TEXT = "<script>document.title='hacked'</script>"
HOSTILE_ID = "<img src=x onerror=\"document.title='hacked'\">.txt"


@dataclass(frozen=True)
class DraftedAnswer:
    """A model, its costs, and a datastore that has its answer to PROMPT."""

    model: Path
    costs: Path
    store: Path
    text: str

    @property
    def words(self) -> tuple[str, ...]:
        """Options of the commands."""
        return ("--model", str(self.model), "--set", f"costs={self.costs}", "--datastore", str(self.store))


def draft_answer(folder: Path) -> DraftedAnswer:
    """Make them in ``folder``. Passes cost nothing more for more nodes, so that drafts are verified."""
    model = Path(REAL) if REAL else _tiny(folder / "tiny")
    target = Target.load(str(model))
    save_costs(CostModel([1, 64], [1.0, 1.0]), CostKey.of(target), folder / "costs.json")
    answer = alone(target, encode_chat(target, [("user", PROMPT)]), SamplingSettings(max_new_tokens=TOKENS))
    tokenizer = target.tokenizer.backend_tokenizer
    documents = [answer, [*answer[: TOKENS // 2], *tokenizer.encode(HOSTILE_TEXT, add_special_tokens=False).ids]]
    make_text_store(folder / "texts", tokenizer, documents, [("answers/one.txt", {}), (HOSTILE_ID, {})]).close()
    text = target.tokenizer.decode(answer, skip_special_tokens=True)
    return DraftedAnswer(model, folder / "costs.json", folder / "texts", text)


def _tiny(folder: Path) -> Path:
    save_tiny(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder
