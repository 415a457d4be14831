"""Which of the drafted tokens become text: ``match`` (the default), ``rejection`` (chains with a true law), ``typical`` (lossy)."""

from suffolk.serving.engine.sampling.verification.match import accept
from suffolk.serving.engine.sampling.verification.rejection import Verdict, sound_rows, verify_chain
from suffolk.serving.engine.sampling.verification.typical import typical_path

__all__ = ["Verdict", "accept", "sound_rows", "typical_path", "verify_chain"]
