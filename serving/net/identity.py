"""The caller of a request: its name, and its role in each tenant."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from suffolk.datastore.errors import PermissionDenied

EVERY_TENANT = "*"
"""The key of a role that is valid in all tenants."""


class Role(enum.IntEnum):
    """The rights of a caller in one tenant. Each role includes the roles before it."""

    READ = 1
    """Drafts, lookups, text generation and info."""
    APPEND = 2
    """Adds documents."""
    ADMIN = 3
    """Deletes and flushes, and sees the sources of drafted tokens."""

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller. Immutable.

    Attributes:
        name: name of its token, or its certificate's subject. It is safe to log.
        roles: tenant -> role; the key EVERY_TENANT means all tenants.
    """

    name: str
    roles: Mapping[str, Role]

    @property
    def tenant(self) -> str:
        """The tenant whose quota the caller's requests use: the first of ``roles``; empty for a role in every tenant."""
        first = next(iter(self.roles), "")
        return "" if EVERY_TENANT in self.roles else first

    def role_in(self, tenant: str) -> Role | None:
        """The caller's role in ``tenant``, which may be EVERY_TENANT; None if the caller has no role there."""
        return max((self.roles[each] for each in (tenant, EVERY_TENANT) if each in self.roles), default=None)

    def has(self, tenant: str, role: Role) -> bool:
        """Whether the caller has ``role`` or a higher one. ``tenant`` may be EVERY_TENANT."""
        return (self.role_in(tenant) or 0) >= role

    def require(self, tenant: str, role: Role) -> None:
        """Raise PermissionDenied unless the caller has ``role`` or a higher one in ``tenant``.

        Check ``Role.READ`` with ``has`` and answer NotFound instead, so that names of other tenants stay hidden.
        """
        if not self.has(tenant, role):
            where = "every tenant ('*')" if tenant == EVERY_TENANT else f"tenant {tenant}"
            raise PermissionDenied(
                f"{self.name} lacks the role {role} in {where}; ask the operator of the server for it"
            )

    def require_anywhere(self, role: Role) -> None:
        """Raise PermissionDenied unless the caller has ``role`` or a higher one in some tenant."""
        if not any(each >= role for each in self.roles.values()):
            raise PermissionDenied(
                f"{self.name} has the role {role} in no tenant; ask the operator of the server for it"
            )


OPERATOR = Identity("the operator", {EVERY_TENANT: Role.ADMIN})
"""The caller of a server without an access file, and of code in the server's own process."""
STRANGER = Identity("a stranger", {})
"""A caller without any role."""
_CALLER: ContextVar[Identity] = ContextVar("caller", default=STRANGER)


def caller() -> Identity:
    """The caller of the request that this thread or task serves. STRANGER if no server has set one."""
    return _CALLER.get()


def set_caller(identity: Identity) -> None:
    """Set ``caller()`` for this thread or task, and for tasks and ``asyncio.to_thread`` calls that it starts."""
    _CALLER.set(identity)
