"""What is refused on the nodes before servers start there."""

from __future__ import annotations

import re

import pytest

from suffolk.build_index.on_ray.connection import Lost
from suffolk.build_index.on_ray.nodes import RayNode
from suffolk.datastore.errors import InvalidArgument, ResourceExhausted, SuffolkError, Unavailable
from suffolk.serving.cluster import node
from suffolk.serving.cluster.node import LEAST_FREE_BYTES, LiveFiles


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (("cannot be written", LEAST_FREE_BYTES, LiveFiles()), InvalidArgument, "/f/a cannot be written on node a"),
        (("", LEAST_FREE_BYTES - 1, LiveFiles()), ResourceExhausted, "node a has 63 MiB free there, and needs 64"),
        (Lost("a node ended"), Unavailable, "a node ended; see 'ray status'"),
    ],
)
def test_a_node_that_cannot_run_servers_is_refused(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[str, int, LiveFiles] | Lost, error: type[SuffolkError], message: str
) -> None:
    found = RayNode("1" * 56, "a", "10.0.0.1")

    def ask(asked: object) -> dict[RayNode, tuple[str, int, LiveFiles]]:
        if isinstance(answer, Lost):
            raise answer
        return {found: answer}

    monkeypatch.setattr(node, "alive_nodes", lambda: [found])
    monkeypatch.setattr(node, "ask_nodes", ask)
    with pytest.raises(error, match=re.escape(message)):
        node.check_nodes("/f", [])
