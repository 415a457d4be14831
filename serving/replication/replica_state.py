"""What a replica must know after a restart: the epoch, whether it leads, and how far its changes are complete."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from suffolk.datastore.errors import damaged
from suffolk.datastore.manifest import write_atomically
from suffolk.serving.live_store.identity import LIVE_NAME, REPLICA_NAME

EPOCH_NUMBERS = 1 << 40
"""Most changes of an epoch. Epoch e gives the numbers from e * EPOCH_NUMBERS on, so no two leaders give the same."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The state of a replica. ``STORE/live/replica.json`` holds it.

    Attributes:
        epoch: the last epoch in which it leads, follows, or was fenced. It never follows an earlier one.
        leads: whether it leads in ``epoch``.
        data_epoch: the epoch of the leader with which it was last in step; 0: it never was.
        complete_below: it has all changes below this number that the leader of ``data_epoch`` had; None: it is in step, so it has
            all changes below its next number. It is a number while missing changes arrive.
        boot: the run of the machine in which it began to lead.
    """

    epoch: int = 0
    leads: bool = False
    data_epoch: int = 0
    complete_below: int | None = None
    boot: str = ""

    def fenced(self, epoch: int) -> ReplicaState:
        """After it was fenced for ``epoch``."""
        return replace(self, epoch=epoch, leads=False)

    def leading(self) -> ReplicaState:
        """After it began to lead in its epoch."""
        return replace(self, leads=True, data_epoch=self.epoch, complete_below=None, boot=boot_id())

    def catching_up(self, epoch: int, position: int) -> ReplicaState:
        """While changes of the leader of ``epoch`` arrive. ``position``: its next number before."""
        below = position if self.complete_below is None else self.complete_below
        return replace(self, epoch=epoch, leads=False, complete_below=below)

    def in_step(self) -> ReplicaState:
        """After it received all that the leader of its epoch has."""
        return replace(self, data_epoch=self.epoch, complete_below=None)


def boot_id() -> str:
    """A name for the run of the machine since its last start."""
    return _BOOT_ID.read_text().strip()


def read_state(store: Path) -> ReplicaState:
    """The state of the replica in the folder ``store``; a new one if there is none.

    A leader stops leading when its machine restarts, because it may have lost changes that its followers have.

    Raises:
        Corruption: the file is damaged.
    """
    path = store / LIVE_NAME / REPLICA_NAME
    if not path.exists():
        return ReplicaState()
    try:
        state = ReplicaState(**json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise damaged(path, f"is damaged: {error}") from error
    return state if state.boot == boot_id() else replace(state, leads=False)


def write_state(store: Path, state: ReplicaState) -> None:
    """Keep ``state`` on disk. Raises ResourceExhausted, PermissionDenied: it cannot be written."""
    write_atomically(store / LIVE_NAME / REPLICA_NAME, json.dumps(asdict(state)).encode())
