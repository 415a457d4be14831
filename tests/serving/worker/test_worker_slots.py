"""Tests slots over gRPC. A cancelled call frees its slot within one step, and a full queue rejects at once."""

from __future__ import annotations

import pytest

from suffolk.datastore.errors import ResourceExhausted
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.gates import Gate
from tests.support.waiting import until
from tests.support.worker_server import calling, talking_target, working

PROMPT = "abcabcabc, abcabc: "
LONG = SamplingSettings(max_new_tokens=3900)


def test_cancelling_takes_effect_at_the_next_pass_and_a_full_queue_rejects_during_one() -> None:
    target = talking_target()
    with working(target, slots=1, queue=1) as server, calling(server) as client:
        engine = server.service.engine
        with Gate(target) as gate:
            first = client.generate(PROMPT, LONG)
            until(lambda: engine.stats()["running"] == 1)
            second = client.generate(PROMPT, SamplingSettings(max_new_tokens=3))
            gate.wait()
            gate.let()
            assert len(next(first).tokens) == 1
            gate.wait()  # in its second pass
            until(lambda: engine.stats()["waiting"] == 1)
            with pytest.raises(ResourceExhausted, match="already has 2 calls, its limit"):
                next(client.generate(PROMPT, LONG))
            first.cancel()
            until(lambda: len(engine._cancelled) == 1)  # the worker knows of the cancellation
        assert len(list(second)) == 3
        until(lambda: server.in_flight() == 0)
        stats = engine.stats()
        assert stats["finished"] == {"cancelled": 1, "length": 1}
        assert (
            stats["tokens"] == 2 + 3
        )  # the first request got the tokens of the pass in which it was cancelled, and no more
