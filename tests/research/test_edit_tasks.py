"""Edit tasks name the notes of a release that concern the edited file."""

from __future__ import annotations

from research.edit_tasks import find_edits

BEFORE = {
    "pkg/names.py": "".join(f"value_{number} = {number}\n" for number in range(30)) + "def parse_header(text): ...\n",
    "pkg/long.py": "x = 1\n" * 500,
    "tests/test_names.py": "y = 1\n" * 30,
    "CHANGES.md": "# 1.0\n\n- the first release\n",
}
AFTER = {
    "pkg/names.py": BEFORE["pkg/names.py"].replace("parse_header(text)", "parse_header(text, strict=False)"),
    "pkg/long.py": "x = 2\n" * 500,
    "tests/test_names.py": "y = 2\n" * 30,
    "pkg/new.py": "z = 1\n" * 30,
    "CHANGES.md": "# 1.1\n\n- colours are green again\n- parse_header takes strict\n\n# 1.0\n\n- the first release\n",
}


def test_an_edit_comes_with_the_nearest_notes_first() -> None:
    [(edit, notes)] = find_edits(BEFORE, AFTER)
    assert (edit.path, edit.before, edit.after) == ("pkg/names.py", BEFORE["pkg/names.py"], AFTER["pkg/names.py"])
    assert notes == ["- parse_header takes strict", "- colours are green again"]


def test_a_release_without_a_change_log_gives_no_task() -> None:
    assert list(find_edits(BEFORE, {**AFTER, "CHANGES.md": BEFORE["CHANGES.md"]})) == []
