"""Tests the worker's page in Chromium against a worker's process: answers, steps, hostile text, keys and lost connections.

Set SUFFOLK_TEST_MODEL to the folder of an instruction-tuned model to take it in place of a tiny one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from suffolk.cli.main import main
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from tests.support.browser import ENTER, RIGHT, Page, chromium, needs_browser
from tests.support.drafted_answers import HOSTILE_ID, HOSTILE_TEXT, PROMPT, TOKENS, DraftedAnswer, draft_answer
from tests.support.forked import running
from tests.support.relay import Relay

pytestmark = [needs_browser, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> DraftedAnswer:
    return draft_answer(tmp_path_factory.mktemp("drafted"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield Page(browser)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The API keys by role, and "file": the access file."""
    file = tmp_path_factory.mktemp("access") / "access.toml"
    roles = {"reader": {"default": Role.READ}, "admin": {"default": Role.ADMIN}}
    return {"file": str(file)} | {name: add_token(file, name, each) for name, each in roles.items()}


@pytest.fixture(scope="module")
def url(answer: DraftedAnswer, keys: dict[str, str]) -> Iterator[str]:
    """The page of a worker with an access file."""
    ports = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with running("worker", *answer.words, *ports, "--access", keys["file"]) as worker:
        yield f"http://{worker.endpoint('http')}/"


def open_page(page: Page, url: str, key: str = "", tokens: int = TOKENS) -> None:
    page.open(url)
    if key:
        page.until(lambda: page.one("#access").get_property("open"))  # the worker has asked for it
        page.write("#key", f"{key}\t")
    page.until(lambda: page.text("#model"))
    page.write("#prompt", PROMPT)
    page.write("#tokens", str(tokens))


def run(page: Page) -> str:
    """Press Run, and return the notice at the end."""
    page.click("#run")
    page.until(lambda: page.one("#run").is_enabled() and page.one("#notice").is_displayed())
    return page.text("#notice")


def open_drafted_step(page: Page) -> None:
    """Run until a step has a draft, and open it. Beside a tiny model's passes drafts are slow, so a busy worker pauses them."""
    for _ in range(5):
        run(page)
        for step in page.all("#answers section:first-child .step"):
            page.activate(step)
            if page.all(".tree"):
                return
    raise AssertionError("no step has a draft")


def test_answers_with_and_without_drafts_race_and_are_identical(
    page: Page, url: str, keys: dict[str, str], answer: DraftedAnswer
) -> None:
    open_page(page, url, keys["admin"])
    assert run(page).startswith("Both texts are identical. With drafts the model was ")
    assert page.texts("#answers .text-box") == [answer.text, answer.text]
    drafted, plain = page.all("#answers section")
    tokens = drafted.find_elements("css selector", ".token")
    assert any(
        "drafted by" in each.get_attribute("title") and "datastore" in each.get_attribute("title") for each in tokens
    )
    assert not plain.find_elements("css selector", ".token")
    [per_pass] = [box.text.split() for box in drafted.find_elements("css selector", "dl > div") if "M" in box.text][:1]
    assert float(per_pass[1]) > 1
    assert "datastore" in drafted.text
    assert f"the model {TOKENS}" in plain.text
    assert page.texts("#live") != [""]  # a screen reader hears the answer
    assert page.messages() == []


def test_a_step_is_opened_by_keys_and_shows_its_tree_and_its_passages(
    page: Page, url: str, keys: dict[str, str]
) -> None:
    open_page(page, url, keys["admin"])
    run(page)
    steps = page.all("#answers section:first-child .step")
    assert [each.get_attribute("tabindex") for each in steps[:3]] == ["0", "-1", "-1"]
    page.run("arguments[0].focus()", steps[0])
    page.press(RIGHT)
    page.press(ENTER)
    page.wait_for("#step h2", "Step 2 of")
    assert page.text("#step h2").endswith("with drafts")
    labels = [each.get_attribute("aria-label") for each in page.all(".tree [role=treeitem]")]
    assert any("probability" in each and "drafted by" in each and "accepted" in each for each in labels)
    assert any("sampled by the model" in each for each in labels)
    page.activate(page.one(".tree [role=treeitem][aria-label*=datastore]"))
    page.until(lambda: page.all(".passages"))
    assert HOSTILE_ID in page.texts(".passages b") or "answers/one.txt" in page.texts(".passages b")
    page.activate(page.one("#step [data-move='Next step']"))
    page.wait_for("#step h2", "Step 3 of")
    assert page.focused().text == "Next step"  # it was drawn again, and keeps the focus
    assert page.messages() == []


def test_hostile_text_stays_text(page: Page, url: str, keys: dict[str, str]) -> None:
    """Corpora and document ids with markup are shown, and do not become elements."""
    open_page(page, url, keys["admin"])
    run(page)
    for step in page.all("#answers section:first-child .step"):
        page.activate(step)
        for button in page.all("#step button[aria-pressed=false]"):
            button.click()
        for node in page.all(".tree [role=treeitem][aria-label*=datastore]"):
            page.activate(node)
            page.until(lambda: page.all(".passages") or page.all("#step .notice"))
            if HOSTILE_TEXT[:8] in "".join(page.texts(".passages .text-box")):
                break
        else:
            continue
        break
    assert HOSTILE_ID in page.texts(".passages b")
    assert HOSTILE_TEXT[:8] in "".join(page.texts(".passages .text-box"))
    assert page.all("main script, main img") == []
    assert page.browser.title == "Suffolk playground"
    assert page.messages() == []


def test_a_wrong_key_is_named_and_nothing_is_lost(page: Page, url: str, keys: dict[str, str]) -> None:
    page.open(url)
    page.wait_for("#notice", "This worker needs an API key.")
    page.write("#prompt", "My long prompt")
    page.write("#key", "suffolk_wrong_key\t")
    page.wait_for("#notice", "The worker does not accept this API key.")
    assert page.focused().get_attribute("id") == "key"
    assert page.one("#prompt").get_property("value") == "My long prompt"
    page.write("#key", f"{keys['reader']}\t")
    page.until(lambda: page.text("#model"))
    page.write("#tokens", "12")
    assert run(page).startswith("Both texts are identical.")
    assert page.all(".token") == []  # a reader does not see which tokens are drafted
    page.activate(page.one(".step"))
    page.wait_for("#step", "Drafts are shown only to callers with the role admin")


def test_a_lost_connection_keeps_the_text_and_can_be_tried_again(page: Page, url: str, keys: dict[str, str]) -> None:
    relay = Relay(url.removeprefix("http://").strip("/"))
    open_page(page, f"http://{relay.address}/", keys["admin"], tokens=3000)
    page.click("#run")
    page.until(lambda: page.all("#answers .step"))
    relay.close()
    page.wait_for("#notice", "The connection to the worker was lost.")
    assert page.texts("#answers .text-box")[0]
    assert page.one("#prompt").get_property("value") == PROMPT
    page.click("#notice button")
    page.until(lambda: page.one("#notice").is_displayed() and page.one("#run").is_enabled())
    assert "lost" in page.text("#notice")
    relay.open()
    page.write("#tokens", "12")
    page.click("#notice button")
    page.wait_for("#notice", "Both texts are identical.")
    relay.close()


@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_fits_the_window(page: Page, url: str, keys: dict[str, str], width: int) -> None:
    page.browser.set_window_size(width, 800)
    try:
        open_page(page, url, keys["admin"])
        open_drafted_step(page)
        assert page.run("return document.documentElement.scrollWidth") <= page.run("return window.innerWidth") <= width
    finally:
        page.browser.set_window_size(1200, 900)


def test_a_trace_is_a_page_of_its_own(page: Page, answer: DraftedAnswer, tmp_path: Path) -> None:
    file = tmp_path / "trace.html"
    prompt = f"{PROMPT}</script><script>document.title='hacked'</script>"
    words = ("--max-new-tokens", str(TOKENS), "--compare-plain", "--trace", str(file), prompt)
    assert main(["generate", *answer.words, *words]) == 0
    page.open(file.as_uri())
    assert page.texts("#prompt") == [prompt]
    page.until(lambda: len(texts := page.texts("#answers .text-box")) == 2 and texts[0] == texts[1] != "")
    page.run("arguments[0].click()", page.one("#answers .step:nth-child(2) span"))
    page.wait_for("#step h2", "with drafts")
    assert page.browser.title == "Suffolk: drafts of one answer"
    assert page.messages() == []
