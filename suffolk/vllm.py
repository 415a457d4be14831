"""The names of Suffolk's drafters in vLLM's ``speculative_config``: ``suffolk.vllm.Proposer`` and ``suffolk.vllm.Speculator``."""

from suffolk.serving.integrations.vllm.proposer import Proposer
from suffolk.serving.integrations.vllm.speculator import Speculator

__all__ = ["Proposer", "Speculator"]
