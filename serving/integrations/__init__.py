"""Adapters for other inference engines, and their shared core.

``core.py`` drafts and plans for another engine, the host. ``vllm``, ``sglang`` and ``transformers`` adapt it to their
interfaces.

Threads: adapters run in the host's threads. Finished texts are appended in the background.

Begin with ``core.py``.
"""
