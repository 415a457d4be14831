"""Tests the one-page report: its modules are one script, and only that script may run."""

from __future__ import annotations

import base64
import hashlib
import re

from suffolk.serving.net.playground.pages import FOLDER, bundled, report_page


def test_the_modules_of_a_page_become_one_script() -> None:
    script = bundled("report.js")
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    assert "</script" not in script
    declared = re.findall(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", script, re.MULTILINE)
    assert len(declared) == len(set(declared)) > 20
    assert script.index("function short") < script.index("function drawTree") < script.index("class StepView")


def test_every_import_is_on_one_line_and_names_a_file() -> None:
    for file in FOLDER.glob("*.js"):
        for line in re.findall(r"^import.*", file.read_text(), re.MULTILINE):
            [name] = re.findall(r'^import \{[^}]*\} from "\./(\w+\.js)";$', line)
            assert (FOLDER / name).is_file()


def test_the_policy_permits_the_pages_own_script_and_style_alone() -> None:
    page = report_page({"model": "m", "prompt": "</script>", "settings": {}, "answers": []})
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="(.*)"', page)
    for tag in ("style", 'script type="module"'):
        [content] = re.findall(rf"<{tag}>(.*?)</{tag.split()[0]}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag.split()[0]}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")


def test_addresses_are_relative_so_a_proxy_may_serve_the_page_under_a_path() -> None:
    for file in (*FOLDER.glob("*.html"), *FOLDER.glob("*.js")):
        assert re.findall(r"""["'`]/[\w/]*["'`?$]""", file.read_text()) == [], file.name
