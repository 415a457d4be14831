"""The Python blocks of the README and of the reference run, in order, on tiny models and a tiny datastore."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from suffolk.cli.main import main
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import save_tiny
from tests.support.worker_server import working

ROOT = Path(__file__).resolve().parents[2]
WORKER = "grpc://127.0.0.1:7710"
STORE = "store/"
DEMO_STORE = ".cache/demo/python-e482439437c6"
CORPUS = (
    "one two three, one two three\nimport numpy as np\nfrom pathlib import Path\ndef add(a, b):\n    return a + b\n"
)


def blocks(page: str) -> list[str]:
    """Return the Python blocks of a page, in order."""
    found = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no Python block"
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files that the pages name: two models and two datastores."""
    save_tiny(tmp_path / "model")
    save_tiny(tmp_path / "small-model")
    (tmp_path / "corpus.txt").write_text(CORPUS * 3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for store in (STORE, DEMO_STORE):
        Path(store).parent.mkdir(parents=True, exist_ok=True)
        assert main(["build", "--tokenizer", "model/", "--output", store, "corpus.txt"]) == 0
    return tmp_path


@pytest.mark.parametrize("page", ["README.md", "docs/reference/python-drafters.md", "docs/how-to/rollouts.md"])
def test_the_page_runs(page: str, here: Path) -> None:
    run(page, {})


@pytest.mark.usefixtures("here")
def test_the_transformers_page_runs() -> None:
    run("docs/how-to/transformers.md", {'"hub/"': repr(str(ROOT / "hub"))})


@pytest.mark.usefixtures("here")
def test_the_python_reference_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = "docs/reference/python.md"
    assert WORKER in blocks(page)[-1]
    with working(Target.load("model/")) as server:
        run(page, {WORKER: f"grpc://{server.listening[0]}"})
    assert len(re.findall(r"length (?:\d+ )?\[", capsys.readouterr().out)) == 2  # the first generation and the worker's


def run(page: str, replaced: dict[str, str]) -> None:
    """Run the blocks of a page in one namespace."""
    names: dict[str, Any] = {}
    for block in blocks(page):
        for old, new in replaced.items():
            block = block.replace(old, new)
        exec(compile(block, page, "exec"), names)  # noqa: S102
