"""Verification: which drafted tokens become text.

``match`` is the default; ``rejection`` serves chains sampled from a known distribution; ``typical`` is lossy. The caller is
``loop/verify_step.py``.
"""

from suffolk.serving.engine.sampling.verification.match import accept
from suffolk.serving.engine.sampling.verification.rejection import VerifiedChain, sound_rows, verify_chain
from suffolk.serving.engine.sampling.verification.typical import typical_path

__all__ = ["VerifiedChain", "accept", "sound_rows", "typical_path", "verify_chain"]
