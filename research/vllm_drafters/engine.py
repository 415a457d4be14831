"""Runs one vLLM engine in its own process, which answers requests from standard input as JSON lines.

The first line holds the arguments of ``vllm.LLM``. Each further line is an object with ``prompts`` (lists of token ids)
and ``max_tokens``. The prompts form one batch; the reply has their tokens, times and counters.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, TextIO

COUNTERS = {
    "vllm:spec_decode_num_drafts": "drafts",
    "vllm:spec_decode_num_draft_tokens": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens": "accepted_tokens",
}
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process, so that its CPU time covers the whole engine
}


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM's prints go to standard error
    os.environ.update(ENVIRONMENT)
    # vLLM's ngram gives the passes more threads than OMP_NUM_THREADS says
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(os.environ["OMP_NUM_THREADS"])])
    from vllm import LLM

    engine = LLM(**json.loads(sys.stdin.readline()))
    _reply(replies, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        _reply(replies, _generate(engine, request["prompts"], request["max_tokens"]))


def _generate(engine: Any, prompts: list[list[int]], max_tokens: int) -> dict[str, Any]:
    from vllm import SamplingParams

    before = _counters(engine)
    begin, cpu = time.perf_counter(), time.process_time()
    found = engine.generate(
        [{"prompt_token_ids": ids} for ids in prompts],
        SamplingParams(temperature=0.0, max_tokens=max_tokens),
        use_tqdm=False,
    )
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
    after = _counters(engine)
    return {
        "tokens": [list(each.outputs[0].token_ids) for each in found],
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        **{name: after[name] - before[name] for name in after},
        "drafter": _drafter_stats(engine),
    }


def _counters(engine: Any) -> dict[str, int]:
    found = dict.fromkeys(COUNTERS.values(), 0)
    for metric in engine.get_metrics():
        if metric.name in COUNTERS:
            found[COUNTERS[metric.name]] += metric.value
    return found


def _drafter_stats(engine: Any) -> dict[str, float]:
    """Counters of Suffolk's proposer; empty for other drafters."""
    [stats] = engine.collective_rpc(_stats)
    return dict(stats)


def _stats(worker: Any) -> dict[str, float]:
    stats = getattr(getattr(worker.model_runner, "drafter", None), "stats", None)
    return {} if stats is None else dict(stats())


def _reply(replies: TextIO, content: dict[str, Any]) -> None:
    replies.write(json.dumps(content) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
