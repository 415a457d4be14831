"""Verification decides which drafted tokens become text.

``match`` is the default; ``rejection`` serves chains sampled from a known distribution; ``typical`` is lossy. The caller is
``loop/verify_step.py``.
"""
