"""Change a running cluster to the settings in a YAML or TOML file, without failed requests.

Servers whose settings change are replaced one at a time: each finishes its requests, and the next one
waits until it is ready again. If one does not start, the others keep their old settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.cluster.options import RayOptions, read_cluster, report
from suffolk.cli.options.setting import REQUIRED, argument

EXAMPLES = """
suffolk cluster update cluster.yaml"""


@dataclass(frozen=True, kw_only=True)
class Options(RayOptions):
    file: Path = argument(REQUIRED, "the cluster's new settings", metavar="CLUSTER.yaml")


def run(options: Options) -> int:
    """Update the cluster; returns 0 once all servers have the new settings."""
    config = read_cluster(options.file)
    with options.connected():
        from suffolk.serving.cluster.lifecycle import update

        update(config, report)
        print(f"cluster {config.name} is updated")
    return 0
