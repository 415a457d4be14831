"""A Ray cluster of several nodes on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "memory": 2 << 30}
HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 10_000,
    "health_check_failure_threshold": 2,
}
"""A killed node is noticed within some seconds."""
QUICK = {"RAY_worker_niceness": "0", "RAY_prestart_worker_first_driver": "0"}
"""Variables of the environment. Ray's processes wait for no other tests, and start when they are needed."""


@contextmanager
def ray_cluster(nodes: int) -> Iterator[Any]:
    """A ``ray.cluster_utils.Cluster`` of so many nodes. The first one is the head."""
    from ray.cluster_utils import Cluster

    with patch.dict("os.environ", QUICK, RAY_USAGE_STATS_ENABLED="0"):
        cluster = Cluster(
            initialize_head=True, head_node_args={**NODE, "include_dashboard": False, "_system_config": HEALTH}
        )
        try:
            for _ in range(nodes - 1):
                cluster.add_node(**NODE)
            yield cluster
        finally:
            cluster.shutdown()
