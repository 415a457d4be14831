"""Start the cluster in a YAML or TOML file on a running Ray, and wait until it takes requests.

The command ends when all servers are ready; they go on. On an error or Ctrl-C, nothing is left
running. A second 'up' with the same file finishes the start; with another one, it is refused.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.cluster.options import RayOptions, read_cluster, report
from suffolk.cli.options.setting import REQUIRED, argument

EXAMPLES = """
suffolk cluster up cluster.yaml
suffolk cluster up cluster.yaml --ray 10.0.0.1:6379
suffolk cluster status

cluster.yaml:
  name: code
  folder: /var/lib/suffolk            # on every node: copies of datastores, logs
  stores:
    datastores:
      code: s3://bucket/code          # or a folder that every node has
    options: {residency: warm}        # further options of 'suffolk serve'
  workers:
    model: /models/qwen               # on every node
    count: 2
    gpus: 1
    options: {slots: 16}              # further options of 'suffolk worker'
  front: {host: 127.0.0.1, port: 8000}  # elsewhere, workers need access or insecure"""


@dataclass(frozen=True, kw_only=True)
class Options(RayOptions):
    file: Path = argument(REQUIRED, "the cluster's settings", metavar="CLUSTER.yaml")


def run(options: Options) -> int:
    """Start the cluster; returns 0 once it is ready."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    config = read_cluster(options.file)
    with options.connected():
        from suffolk.serving.cluster.lifecycle import up

        up(config, report)
        print(f"cluster {config.name} is up")
    return 0
