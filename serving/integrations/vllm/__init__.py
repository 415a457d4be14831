"""The adapter for vLLM: a proposer for ``method: custom_class``, and a plug-in that mends vLLM's sampling on CPUs."""
