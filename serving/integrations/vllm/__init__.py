"""The adapter for vLLM: a proposer for ``method: custom_class``, and a plug-in that fixes vLLM's sampling on CPUs."""
