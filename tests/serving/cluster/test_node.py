"""What is refused on the nodes before servers start there."""

from __future__ import annotations

import re

import pytest

from suffolk.datastore.errors import InvalidArgument, ResourceExhausted, SuffolkError
from suffolk.datastore.version import __version__
from suffolk.serving.cluster import node
from suffolk.serving.cluster.node import LEAST_FREE_BYTES, Node


@pytest.mark.parametrize(
    ("report", "error", "message"),
    [
        (
            ("0.0.1+old", "", LEAST_FREE_BYTES),
            InvalidArgument,
            f"node a has suffolk 0.0.1+old, and this machine {__version__}",
        ),
        ((__version__, "cannot be written", LEAST_FREE_BYTES), InvalidArgument, "/f/a cannot be written on node a"),
        ((__version__, "", LEAST_FREE_BYTES - 1), ResourceExhausted, "node a has 63 MiB free there, and needs 64"),
    ],
)
def test_a_node_that_cannot_run_servers_is_refused(
    monkeypatch: pytest.MonkeyPatch, report: tuple[str, str, int], error: type[SuffolkError], message: str
) -> None:
    found = Node("1" * 56, "a", "10.0.0.1")
    monkeypatch.setattr(node, "alive_nodes", lambda: [found])
    monkeypatch.setattr(node.ray, "get", lambda reference, timeout: report)
    monkeypatch.setattr(node.ray, "remote", lambda check: Remote())
    with pytest.raises(error, match=re.escape(message)):
        node.check_nodes("/f")


class Remote:
    """A task of Ray that is never run."""

    def options(self, **_: object) -> Remote:
        return self

    def remote(self, folder: str) -> None:
        return None
