"""Ray with several nodes on this machine, in a process of its own: for studies and tests of clusters.

The words "add NAME" and "kill NAME" on its stdin change the nodes. It ends when its stdin closes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "120",
}
"""Every node listens on a loopback address; without this, Ray takes the address of an interface. No usage statistics are sent.
A busy machine gets time to start a node."""
FAST_DETECTION = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
"""Ray notices a dead node within about two seconds; by default it takes about 15."""
_NODE = {"num_cpus": 4, "object_store_memory": 80 << 20, "include_dashboard": False}


@dataclass
class LocalRay:
    """A running Ray. ``environment``: variables that commands need to connect to ``address``."""

    address: str
    environment: dict[str, str]
    process: subprocess.Popen[str]

    def change(self, words: str) -> None:
        """ "add NAME" starts a node; "kill NAME" ends one with SIGKILL. Returns when it is done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def processes(self, title: str) -> list[int]:
        """Ids of the processes below this Ray whose command line begins with ``title``, such as "ray::Controller"."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if " ".join(child.cmdline()).startswith(title):
                    found.append(child.pid)
        return found


@contextmanager
def local_ray(nodes: Sequence[str], variables: dict[str, dict[str, str]] | None = None) -> Iterator[LocalRay]:
    """Ray with these nodes, at 127.0.0.1, 127.0.0.2 and so on; the first one is the head.

    ``variables``: of the environment of each node, by its name.
    """
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        environment = os.environ | ENVIRONMENT | {"RAY_TMPDIR": folder}
        process = subprocess.Popen(
            [sys.executable, "-m", "research.local_ray", json.dumps([*nodes]), json.dumps(variables or {})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=Path(__file__).parents[1],
        )
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, f"Ray did not start; see {folder}"
            yield LocalRay(address, environment, process)
        finally:
            below = psutil.Process(process.pid).children(recursive=True)
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            for child in below:
                with suppress(psutil.NoSuchProcess):
                    child.kill()


def main(names: list[str], variables: dict[str, dict[str, str]]) -> None:
    """Run until stdin closes."""
    from ray.cluster_utils import Cluster

    def options(name: str) -> dict[str, Any]:
        address = f"127.0.0.{1 + names.index(name)}"
        return _NODE | {"node_name": name, "node_ip_address": address, "env_vars": variables.get(name, {})}

    cluster = Cluster(initialize_head=True, head_node_args=options(names[0]) | {"_system_config": FAST_DETECTION})
    nodes = {name: cluster.add_node(**options(name)) for name in names[1:]}
    print(cluster.address, flush=True)
    for line in sys.stdin:
        action, name = line.split()
        if action == "add":
            nodes[name] = cluster.add_node(**options(name))
        else:
            cluster.remove_node(nodes.pop(name), allow_graceful=False)
        print("done", flush=True)
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), json.loads(sys.argv[2]))
