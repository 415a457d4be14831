"""Adapters for other inference engines, and their shared core.

``core.py`` drafts and plans for an engine that is not ours; ``vllm``, ``sglang`` and ``transformers`` fit it to their interfaces.

Threads: the calling engine's. Appends of finished texts run in the background.

Begin with ``core.py``.
"""
