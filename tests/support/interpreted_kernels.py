"""Lets Triton's interpreter run kernels on the CPU, with TRITON_INTERPRET=1 from ``tests/conftest.py``.

Triton 3.6 turns numbers of kernels into Python's by ``int(array)``, which NumPy 2.4 refuses for arrays of one dimension.
"""

from __future__ import annotations

from typing import Any

from triton.runtime import interpreter

_patch = interpreter._patch_lang_tensor


def _patch_tensor(tensor: Any, scope: Any) -> None:
    _patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patch_tensor
