"""The name of Suffolk's proposer in vLLM's ``speculative_config``: ``suffolk.vllm.Proposer``."""

from suffolk.serving.integrations.vllm.proposer import Proposer

__all__ = ["Proposer"]
