"""Stop a cluster: the front, then workers, which finish their requests, then store servers."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.cli.cluster.options import NamedOptions

EXAMPLES = """
suffolk cluster down
suffolk cluster down --cluster code"""


@dataclass(frozen=True, kw_only=True)
class Options(NamedOptions):
    pass


def run(options: Options) -> int:
    """Stop the cluster; returns 0, also if none is up."""
    with options.connected():
        from suffolk.serving.cluster.lifecycle import clusters, down

        if options.cluster is None and not clusters():
            print("no cluster is up")
            return 0
        name = options.name()
        stopped = down(name)
        print(f"cluster {name}: stopped {', '.join(stopped)}" if stopped else f"cluster {name} is not up")
    return 0
