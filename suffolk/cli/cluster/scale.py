"""Change how many workers or store servers a running cluster has.

What is stopped finishes its requests first. The next 'update' sets the numbers of its file again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from suffolk.cli.cluster.options import NamedOptions, report
from suffolk.cli.options.setting import option
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import Within

EXAMPLES = """
suffolk cluster scale --workers 4
suffolk cluster scale --stores 0                one on every node"""


@dataclass(frozen=True, kw_only=True)
class Options(NamedOptions):
    workers: Annotated[int, Within(0, 1024)] | None = option(None, "workers that shall run", metavar="N")
    stores: Annotated[int, Within(0, 64)] | None = option(None, "store servers; 0 is one on every node", metavar="N")


def run(options: Options) -> int:
    """Scale the cluster; returns 0 once the wanted servers run."""
    if options.workers is None and options.stores is None:
        raise InvalidArgument(Field("workers"), ": give --workers N, --stores N, or both")
    with options.connected():
        from suffolk.serving.cluster.lifecycle import scale

        name = options.name()
        scale(name, options.workers, options.stores, report)
        print(f"cluster {name} is scaled")
    return 0
