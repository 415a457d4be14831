"""Turns the errors of Ray into those of Suffolk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import ray.exceptions as errors

from suffolk.datastore.errors import Internal, ResourceExhausted, SuffolkError, Unavailable

LOST = (
    errors.WorkerCrashedError,
    errors.NodeDiedError,
    errors.ObjectLostError,
    errors.OutOfMemoryError,
    errors.TaskCancelledError,
    errors.TaskUnschedulableError,  # the node to which a task is bound has ended
)


class Lost(Exception):
    """A machine or a process of the cluster ended, and its work is lost."""


@contextmanager
def ray_errors() -> Iterator[None]:
    """Raises the error of a task as the task raised it.

    Raises:
        Lost: a node or a process ended.
        Internal: a task failed by an unknown error.
        ResourceExhausted, Unavailable: the cluster cannot go on.
    """
    try:
        yield
    except errors.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, SuffolkError):
            raise cause from None
        if isinstance(cause, LOST):
            raise _lost(cause) from error
        raise Internal(f"a task on the cluster failed ({type(cause).__name__}: {short(cause)})") from error
    except LOST as error:
        raise _lost(error) from error
    except (errors.OutOfDiskError, errors.ObjectStoreFullError) as error:
        raise ResourceExhausted(
            f"a node's disk or object store is full ({short(error)}); free some, or build with a smaller --segment-tokens, and "
            "run the command again to resume"
        ) from error
    except errors.RayError as error:
        raise Unavailable(
            f"the Ray cluster does not go on ({short(error)}); run the command again to resume"
        ) from error


def _lost(error: BaseException) -> Lost:
    return Lost(f"a node or a process of the cluster ended ({type(error).__name__})")


def short(error: BaseException) -> str:
    """The beginning of an error of Ray, which may have many lines."""
    return " ".join(str(error).split())[:300] or type(error).__name__
