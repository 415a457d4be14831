"""See what Suffolk does on this machine, from nothing: a small model (SmolLM2-135M-Instruct, a download
of 93 MB), a datastore from the Python source that is installed here, a draft service, and eight coding
prompts, decoded with and without drafts.

The last lines are a table of speed-ups. The exit code is 0 if every text is identical to plain
decoding, except at near-ties. It takes about four minutes and 2 GB of disk, the second time about
two minutes. Needs pip install 'suffolk[demo]'.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from suffolk.benchmarks.demo.model import require_packages
from suffolk.cli.options import setting
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import Count, Within, option

EXAMPLES = """
suffolk demo
suffolk demo --prompts 2 --max-new-tokens 48
suffolk demo --model MODEL_FOLDER --folder /tmp/suffolk"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    model: str | None = option(None, "folder or hub name of another model", metavar="MODEL")
    prompts: Count | None = option(None, "use N of the prompts, chosen at random (default: all)")
    max_new_tokens: Annotated[int, Within(1, 4096)] = option(96, "longest answer, in tokens")
    folder: Path | None = option(
        None, "folder for the model and the datastore, which are used again (default: ~/.cache/suffolk)", metavar="DIR"
    )


def run(options: Options) -> int:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = options.folder or cache / "suffolk"
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(Field("folder"), f" is {str(folder)!r}, which is no folder; name another one")
    require_packages()
    from suffolk.benchmarks.demo.run import run as run_demo  # imports torch

    return run_demo(folder, options.model, options.prompts, options.max_new_tokens)
