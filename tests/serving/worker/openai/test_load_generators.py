"""Runs two published programs against the worker: GuideLLM with eight requests at once, and one task of lm-eval.

They have many requirements, so they are installed in environments of their own, and found on the PATH.
docs/how-to/openai-api.md shows the commands.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.worker.server import WorkerServer
from tests.support.worker_server import talking_target, working

WAIT = 300
"""Seconds: only a hang lasts longer."""
OFFLINE = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
TASK = """
task: colours
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: generate_until
doc_to_text: "{{prompt}}"
doc_to_target: "red"
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 12}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerServer]:
    target = talking_target()
    with working(target, {"prompt-lookup": PromptLookupDrafter(target.vocab_size)}, slots=4, queue=16) as server:
        yield server


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"Name colour number {each}."}) + "\n" for each in range(16)))
    return path


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_guidellm_counts_no_error(worker: WorkerServer, prompts: Path, tmp_path: Path, path: str) -> None:
    output = tmp_path / "report.json"
    backend = f"kind=openai_http,target=http://{worker.http},model=tiny,max_tokens=12,request_format={path}"
    _run(
        "guidellm",
        *("run", "--disable-console", "--backend", backend, "--profile", "kind=concurrent,streams=8"),
        *("--constraint", "kind=max_requests,count=16", "--data", f"kind=json_file,path={prompts}"),
        *("--output", f"kind=json,path={output}"),
    )
    [found] = json.loads(output.read_text())["benchmarks"]
    totals = found["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"], totals["incomplete"]) == (16, 0, 0)
    assert found["metrics"]["output_token_count"]["successful"]["max"] == 12  # from the usage of the stream


def test_lm_eval_finishes_a_task(worker: WorkerServer, prompts: Path, tmp_path: Path) -> None:
    (tmp_path / "colours.yaml").write_text(TASK % prompts)
    model = f"model=tiny,base_url=http://{worker.http}/v1/chat/completions,num_concurrent=8,max_retries=1"
    output = tmp_path / "results"
    _run(
        "lm-eval",
        *("run", "--model", "local-chat-completions", "--model_args", model, "--apply_chat_template"),
        *("--tasks", "colours", "--include_path", str(tmp_path), "--output_path", str(output), "--log_samples"),
    )
    [samples] = output.rglob("samples_colours_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    assert len(rows) == 16
    assert all(row["resps"][0][0] for row in rows)


def _run(name: str, *words: str) -> None:
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not on the PATH")
    done = subprocess.run([program, *words], capture_output=True, text=True, env=OFFLINE, timeout=WAIT)
    assert done.returncode == 0, done.stderr[-3000:]
