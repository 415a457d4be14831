"""Which of the drafted tokens become text: ``match`` (the default), ``rejection`` (chains with a true law), ``typical`` (lossy)."""

from serving.decoding.verification.match import accept
from serving.decoding.verification.rejection import Verdict, sound_rows, verify_chain
from serving.decoding.verification.typical import typical_path

__all__ = ["Verdict", "accept", "sound_rows", "typical_path", "verify_chain"]
