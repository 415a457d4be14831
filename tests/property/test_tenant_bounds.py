"""A tenant stores at most its quota of tokens, over all of its live datastores, whatever it appends, replaces and deletes."""

from __future__ import annotations

import contextvars
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from suffolk.datastore.documents import Document
from suffolk.datastore.errors import ResourceExhausted
from suffolk.serving.net.identity import EVERY_TENANT, Identity, Role
from suffolk.serving.net.quota import TenantQuota, Usages, set_usages
from suffolk.serving.store.draft_service.live_calls import Append, LiveCalls
from suffolk.serving.store.draft_service.service import DraftService
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.store import create_live_store
from tests.support.callers import acting_as
from tests.support.examples import examples

QUOTAS = {"acme": 30, "beta": 12}
STORES = ("acme/a", "acme/b", "beta/c")
GROUPS = (None, "g", "h")
SETTINGS = LiveSettings(durability="none", flush_tokens=0, threads=1)


@given(data=st.data())
@examples(8)
def test_a_tenant_stores_at_most_its_quota(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stores = {
            name: stack.enter_context(create_live_store(Path(folder, name[-1]), vocab_size=9, settings=SETTINGS))
            for name in STORES
        }
        calls = LiveCalls(DraftService(stores, 4))
        contextvars.copy_context().run(change_randomly, calls, data)


def change_randomly(calls: LiveCalls, data: st.DataObject) -> None:
    usages = Usages()
    usages.set_quotas({tenant: TenantQuota(stored_tokens=size) for tenant, size in QUOTAS.items()})
    set_usages(usages)
    held: dict[str, list[tuple[str | None, int]]] = {name: [] for name in STORES}  # group and tokens of each document
    with acting_as(Identity("operator", {EVERY_TENANT: Role.ADMIN})):
        for _ in range(data.draw(st.integers(5, 40), label="steps")):
            name, group = data.draw(st.sampled_from(STORES)), data.draw(st.sampled_from(GROUPS))
            kind = data.draw(st.sampled_from(["append", "append", "replace", "delete", "flush"]))
            of_group = [each for each in held[name] if group is not None and each[0] == group]
            if kind in ("append", "replace"):
                append(calls, held, name, group, kind == "replace" and group is not None, data.draw(st.integers(1, 9)))
            elif kind == "delete" and of_group:
                calls.delete(name, [], [], group or "")
                held[name] = [each for each in held[name] if each[0] != group]
            elif kind == "flush":
                calls.flush(name)  # published tokens count too
            for tenant, most in QUOTAS.items():
                assert stored(held, tenant) <= most


def append(
    calls: LiveCalls,
    held: dict[str, list[tuple[str | None, int]]],
    name: str,
    group: str | None,
    replace: bool,
    size: int,
) -> None:
    """Append a document of ``size`` tokens; it is refused exactly if the tenant would have more than its quota."""
    request = Append([Document(None, {}, np.ones(size, np.int64))], [group], replace)
    tenant = name.partition("/")[0]
    left = [each for each in held[name] if not (replace and each[0] == group)]
    after = {**held, name: [*left, (group, size)]}
    if stored(after, tenant) <= QUOTAS[tenant]:
        calls.append(name, request)
        held[name] = after[name]
        return
    try:
        calls.append(name, request)
    except ResourceExhausted:
        return
    raise AssertionError(f"{name} took {size} tokens beyond the quota")


def stored(held: dict[str, list[tuple[str | None, int]]], tenant: str) -> int:
    return sum(tokens for name, kept in held.items() if name.startswith(tenant) for _, tokens in kept)
