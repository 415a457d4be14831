"""The report of a command that changed a datastore, with the servers that read it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suffolk.datastore.readers import reader_lines, wait_for_readers


def change_report(facts: dict[str, Any], lines: Sequence[str], store: Path, changed: bool, as_json: bool) -> str:
    """The report as one JSON object, or as lines. Waits a moment for the readers of a datastore that ``changed``.

    Args:
        facts: the values of the JSON object, with the datastore's ``generation``.
        lines: the same facts for people.
    """
    readers = wait_for_readers(store, facts["generation"]) if changed else []
    if as_json:
        return json.dumps(facts | {"readers": list(map(asdict, readers))})
    return "\n".join([*lines, *reader_lines(readers, facts["generation"])])
