"""The edits that an agent asks for, one a turn, and the file as an answer has it."""

from __future__ import annotations

import re

EDITS = (
    "Add a comment line above every function and class.",
    "Add type hints to every function.",
    "Rename the first variable or parameter of every function to a clearer name.",
    "Add a docstring to every function.",
)
_TASK = "{edit} Change nothing else. Answer with the whole file and no explanation.\n\n```python\n{file}\n```"
_BLOCK = re.compile(r"```[a-z]*\n(.*?)(?:\n```|$)", re.DOTALL)


def task(edit: str, file: str) -> str:
    """The request of a turn: the agent has read ``file`` again."""
    return _TASK.format(edit=edit, file=file)


def edited_file(answer: str) -> str:
    """The file in ``answer``: its first code block, or all of it."""
    found = _BLOCK.search(answer)
    return found.group(1) if found else answer
