"""Why a copy may not lead next: the rule by which nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Mapping

from suffolk.serving.store.replication.messages import ReplicaStatus
from suffolk.serving.store.replication.register import Leadership

BY_ORDER = "or see 'suffolk promote --accept-loss'"


def obstacle(
    name: str,
    value: Leadership,
    own: ReplicaStatus,
    failure: str | None,
    intact: bool,
    found: Mapping[str, ReplicaStatus],
) -> str:
    """Why the copy ``own`` of the store ``name`` may not lead next; empty if it may.

    Args:
        value: of the register.
        failure: why its log takes no changes; None if it does.
        intact: whether it was not found to have other documents than a leader.
        found: what the other copies say that answer, by id.
    """
    if failure is not None:
        return failure
    if not value.epoch:
        if own.position == 1:
            return ""
        return f"{name} has documents, and the register has no leader; choose one with 'suffolk promote --accept-loss'"
    if own.id not in value.in_sync:
        return f"{name} has no leader, and this copy is not in sync; start the others, {BY_ORDER}"
    if own.compared:
        return ""
    if not intact:
        return f"{name} has other documents than its leader had"
    return _obstacle_after_restart(name, value, own, found)


def _obstacle_after_restart(
    name: str, value: Leadership, own: ReplicaStatus, found: Mapping[str, ReplicaStatus]
) -> str:
    """A disk may have lost something meanwhile. So all copies in sync must say what they have, and the one with the most leads."""
    others = [each for each in value.in_sync if each != own.id]
    if away := [each for each in others if each not in found]:
        copies = ", ".join(away)
        return f"{name} has no leader, and this copy was started again; start the copies {copies} too, {BY_ORDER}"
    if any(found[each].compared for each in others):
        return f"{name} has no leader yet"
    if max(((found[each].position, each) for each in others), default=(0, "")) > (own.position, own.id):
        return f"{name} has no leader yet; another copy has more changes"
    if value.ends and own.position < value.ends[-1].position:
        return f"{name}: no copy in sync has the changes below {value.ends[-1].position}; restore one, {BY_ORDER}"
    return ""
