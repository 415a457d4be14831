"""Studies that support constants in the code and figures in the documents.

Not installed; run as ``python -m research.NAME``.
"""
