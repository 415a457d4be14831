"""Finds the identity of a caller from its token or its certificate."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from suffolk.datastore.errors import PermissionDenied, SuffolkError
from suffolk.datastore.files import file_version
from suffolk.serving.net.access_file import AccessRules, read_access_file
from suffolk.serving.net.identity import OPERATOR, Identity, set_caller
from suffolk.serving.net.quota import Usage, Usages, set_usages

LOG = logging.getLogger("suffolk.server")
CHECK_SECONDS = 1.0
"""Seconds between two looks at the file."""


class Authenticator:
    """Finds identities by the rules of an access file, which is read again when it changes. Thread-safe.

    Without a file, every caller is OPERATOR. If a changed file is malformed or missing, the error is logged, and the earlier
    rules stay valid. Running calls keep their identity.

    Attributes:
        usages: what each tenant uses of its quota.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises the errors of ``read_access_file``."""
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._version = file_version(path)
        self._rules = AccessRules() if path is None else read_access_file(path)
        self.usages = Usages()
        self.usages.set_quotas(dict(self._rules.quotas))
        self._due = clock() + CHECK_SECONDS

    @property
    def rules(self) -> AccessRules:
        """The rules in force."""
        if self._path is not None and self._clock() >= self._due:
            self._check()
        return self._rules

    def reload(self) -> None:
        """Read the file again. Raises the errors of ``read_access_file``; the earlier rules then stay valid."""
        if self._path is not None:
            with self._lock:
                self._version = file_version(self._path)
                self._rules = read_access_file(self._path)
                self.usages.set_quotas(dict(self._rules.quotas))

    def _check(self) -> None:
        """Read the file again if it has changed. Never raises."""
        with self._lock:
            self._due = self._clock() + CHECK_SECONDS
            if file_version(self._path) == self._version:
                return
        try:
            self.reload()
        except SuffolkError as error:
            LOG.error("%s; the rules before stay in force", error)
        else:
            LOG.info("access file %s was read again", self._path)

    def identify(self, authorization: str, subjects: Iterable[str] = ()) -> Identity:
        """The identity of a caller. If there are a token and a certificate, the token counts.

        Args:
            authorization: value of the Authorization header; empty if there is none.
            subjects: names in the client's certificate, which TLS has verified.

        Raises:
            PermissionDenied: the token is unknown, or there is no token and no known certificate.
        """
        if self._path is None:
            return OPERATOR
        rules = self.rules
        if authorization:
            scheme, _, token = authorization.partition(" ")
            found = rules.find_token(token.strip()) if scheme.lower() == "bearer" else None
            if found is None:
                raise PermissionDenied("the token is wrong or was removed; send 'Authorization: Bearer TOKEN'")
            return found
        for subject in subjects:
            if subject in rules.subjects:
                return rules.subjects[subject]
        raise PermissionDenied("no token was sent; send 'Authorization: Bearer TOKEN', or a client certificate")

    def admit(self, authorization: str, subjects: Iterable[str] = ()) -> Usage | None:
        """Identify the caller of a call, set ``caller()`` and the usages, and count the call.

        Returns the usage whose ``end_call`` must be called at the end, or None for a caller without a tenant.

        Raises:
            PermissionDenied: see ``identify``.
            QuotaExceeded: the tenant has no calls left.
        """
        identity = self.identify(authorization, subjects)
        set_caller(identity)
        set_usages(self.usages)
        if not identity.tenant:
            return None
        usage = self.usages.of(identity.tenant)
        usage.begin_call()
        return usage
