"""The former name of ``suffolk bench hybrid``: passes its options on."""

import shutil
import subprocess
import sys
from pathlib import Path

code = subprocess.run([sys.executable, "-m", "suffolk", "bench", "hybrid", *sys.argv[1:]], check=False).returncode
if "--output" in sys.argv:
    output = Path(sys.argv[sys.argv.index("--output") + 1])
    for ending in ("json", "png"):
        if (output / f"hybrid.{ending}").exists():
            shutil.copy(output / f"hybrid.{ending}", output / f"one_tree.{ending}")
sys.exit(code)
