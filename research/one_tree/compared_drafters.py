"""Creates the compared drafters by name: single sources, switching rules, and one tree with useless sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from research.one_tree.hindsight_drafter import HINDSIGHT, HindsightDrafter
from research.one_tree.switching_rules import Rule, SwitchingDrafter, arctic_inference, sam_decoding
from suffolk.benchmarks.decode.bounding_drafters import UselessDrafter
from suffolk.benchmarks.decode.options import LIMITS
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.drafters.retrieval.token_recycling import TokenRecyclingDrafter
from suffolk.serving.decoding.engine.loop.drafter import Drafter

TEXT = ("datastore", "prompt-lookup")
HYBRID = "hybrid"
RULES: dict[str, Rule] = {"sam-decoding": sam_decoding, "arctic-inference": arctic_inference}
WITH_NETWORK, WITH_STORE = f"{HYBRID} + useless network", f"{HYBRID} + unrelated datastore"


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of the compared drafters.

    Attributes:
        vocab_size: vocabulary size of the target.
        store: the datastore; may be None.
        unrelated: a datastore that is unlike the prompts; may be None.
        networks: loaded networks. Drafters share them: a run drafts with one drafter at a time.
    """

    vocab_size: int
    store: Retriever | None = None
    unrelated: Retriever | None = None
    networks: Sequence[Drafter] = ()


def singles(networks: Sequence[str], store: bool) -> list[str]:
    """Names of the single sources: text sources, and ``networks``."""
    return [*(TEXT if store else TEXT[1:]), *networks]


def compared_names(networks: Sequence[str], store: bool) -> list[str]:
    """Names of all drafters to compare.

    These are the single sources, every pair of a rule and a network, and one tree of all sources. If there are several
    networks, there is also one tree with each of them.
    """
    drafting = [network for network in networks if network != TokenRecyclingDrafter.name]
    rules = [f"{rule}: {network}" for rule in RULES for network in drafting]
    parts = [f"{HYBRID}: {network}" for network in drafting] if len(drafting) > 1 else []
    return [*singles(networks, store), *rules, *parts, HYBRID]


def useless_names(unrelated: bool) -> list[str]:
    """Names of the drafter with one tree of all sources, and of its variants with added useless sources."""
    return [HYBRID, WITH_NETWORK, *([WITH_STORE] if unrelated else [])]


def make_compared(names: Sequence[str], sources: Sources) -> dict[str, Drafter]:
    """Create the drafters with those names.

    Raises:
        InvalidArgument: a name is unknown, or its source is missing.
    """
    return {name: _make(name, sources) for name in names}


def _make(name: str, sources: Sources) -> Drafter:
    networks = list(sources.networks)
    kind, _, network = name.partition(": ")
    chosen = [each for each in networks if each.name == network] if network else networks
    if network and not chosen:
        raise InvalidArgument(f"drafter {name!r}: network {network!r} is not loaded; name it as for 'suffolk generate'")
    chosen = [_fresh(each) for each in chosen]
    if kind in RULES and network:
        return SwitchingDrafter(name, _texts(sources), chosen[0], RULES[kind])
    if kind == HINDSIGHT and network:
        others = [_fresh(each) for each in networks if each.name != network]
        scoring = [each for each in others if isinstance(each, RetrievalSource)]
        return HindsightDrafter(name, [*_texts(sources), *scoring], chosen[0])
    if kind == HYBRID:
        return HybridDrafter(_texts(sources), chosen)
    if name == WITH_NETWORK:
        return HybridDrafter(_texts(sources), [*chosen, UselessDrafter(sources.vocab_size)])
    if name == WITH_STORE and sources.unrelated is not None:
        more = DatastoreDrafter(sources.unrelated, sources.vocab_size, LIMITS)
        return HybridDrafter([*_texts(sources), more], chosen)
    stores = [] if sources.store is None else [sources.store]
    drafter = make_drafter(name, sources.vocab_size, stores, LIMITS, chosen)
    if drafter is None:
        raise InvalidArgument(f"drafter {name!r}: plain decoding is always measured; remove it from --drafters")
    return drafter


def _fresh(network: Drafter) -> Drafter:
    """Create a drafter that has not learned from other drafters' answers."""
    return TokenRecyclingDrafter(LIMITS) if network.name == TokenRecyclingDrafter.name else network


def _texts(sources: Sources) -> list[RetrievalSource]:
    """Create text sources as ``make_drafter`` does for hybrid."""
    found: list[RetrievalSource] = [PromptLookupDrafter(sources.vocab_size, LIMITS)]
    if sources.store is not None:
        found.append(DatastoreDrafter(sources.store, sources.vocab_size, LIMITS))
    return found
