"""Studies behind the constants and the figures of the documents. Not installed; run as ``python -m research.NAME``."""
