"""The way into builds on Ray. It imports Ray only when a build begins."""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from functools import partial

from suffolk.build_index.encode_block import EncodeSetup
from suffolk.build_index.gather import Gatherer
from suffolk.build_index.state import BuildState, OpenMaker, SegmentMaker
from suffolk.datastore.errors import Unsupported


def on_ray(address: str, url: str | None = None) -> OpenMaker:
    """Lets ``build`` work on a cluster.

    Args:
        address: HOST:PORT of the cluster, "auto" for the one that runs on this machine, or "local" to start one here.
        url: where the tasks send finished segments; None: they return them to this process.

    Raises:
        Unsupported: Ray is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise Unsupported("Ray is not installed, and --ray needs it; pip install 'suffolk[ray]'")
    make: SegmentMaker = partial(_make_segments, address, url)
    return lambda workers: nullcontext(make)


def _make_segments(address: str, url: str | None, gatherer: Gatherer, state: BuildState, setup: EncodeSetup) -> int:
    from suffolk.build_index.on_ray.segments import make_segments

    return make_segments(address, url, gatherer, state, setup)
