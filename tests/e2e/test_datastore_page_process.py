"""Tests the draft service's page in Chromium against a process: look-ups while typing, hostile text, keys, lost connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from tests.support.browser import ENTER, RIGHT, Page, chromium, needs_browser
from tests.support.forked import running
from tests.support.processes import Running
from tests.support.relay import Relay
from tests.support.stores import byte_tokenizer, make_text_store

pytestmark = [needs_browser, pytest.mark.timeout(600)]
HOSTILE_TEXT = "<script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">"
HOSTILE_ID = "<img src=x onerror=\"document.title='hacked'\">.txt"
CODE = [
    ("one two three", "a.py"),
    ("one two four", "b.py"),
    (f"see {HOSTILE_TEXT} \u202e", HOSTILE_ID),
    ("déjà vu", "é.txt"),
]
WIKI = [("one two three", "wiki.md")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the datastores code and wiki, whose tokens are bytes and the beginnings of "three"."""
    folder, tokenizer = tmp_path_factory.mktemp("stores"), byte_tokenizer("three")
    for name, texts in (("code", CODE), ("wiki", WIKI)):
        documents = [tokenizer.encode(text, add_special_tokens=False).ids for text, _ in texts]
        origins = [(id_, {"license": "<b>mit</b>"}) for _, id_ in texts]
        make_text_store(folder / name, tokenizer, documents, origins).close()
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield Page(browser)


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[Running]:
    stores = (str(folder / "code"), str(folder / "wiki"))
    with running("serve", *stores, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *words) as server:
        yield server


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with serving(folder) as server:
        yield f"http://{server.endpoint('http')}/"


def look_up(page: Page, url: str, text: str, store: str = "code") -> None:
    """Open the page, choose a datastore, type, and wait for the answer."""
    page.open(url)
    page.until(lambda: page.all("#store option"))
    page.one(f"#store option[value='{store}']").click()
    page.write("#text", text)
    settle(page, text)


def settle(page: Page, text: str) -> None:
    page.until(lambda: page.all("#results[aria-busy=false]:not([hidden])"))
    assert page.texts("#marks") == [f"{text}\n"]


def figures(page: Page) -> dict[str, str]:
    return dict(zip(page.texts("#figures dt"), page.texts("#figures dd"), strict=True))


def nodes(page: Page) -> list[str]:
    return [str(each.get_attribute("aria-label")) for each in page.all(".tree [role=treeitem]")]


def test_typing_shows_match_tree_and_occurrences(page: Page, url: str) -> None:
    look_up(page, url, "xx one two ")
    assert page.texts("#marks mark") == ["one two "]
    shown = figures(page)
    assert shown["longest match"] == "8 of 11 tokens"
    assert shown["occurrences"] == "2"
    assert shown["server time"].endswith(" ms")
    assert nodes(page)[:2] == ['"f", 1 occurrence, 50 % of the match', '"three", 1 occurrence, 50 % of the match']
    assert page.texts(".places .text-box") == ["one two four", "one two three"]
    assert page.texts(".places mark") == ["one two "] * 2
    assert sorted(page.texts(".places b")) == ["a.py", "b.py"]
    assert page.texts("#live") == ["8 of 11 tokens match, 2 occurrences."]
    page.one("#text").send_keys("f")
    settle(page, "xx one two f")
    assert figures(page)["occurrences"] == "1"
    page.write("#text", "déjà")
    settle(page, "déjà")
    assert page.texts("#marks mark") == ["déjà"]  # six tokens of four characters
    assert page.messages() == []


def test_hostile_text_stays_text(page: Page, url: str) -> None:
    look_up(page, url, "see <")
    assert page.texts(".places b") == [HOSTILE_ID]
    assert page.texts(".places .text-box")[0].startswith("see <script>document.title=")
    assert "license: <b>mit</b>" in page.texts(".places .origin")[0]
    page.one("#text").clear()
    look_up(page, url, HOSTILE_TEXT)
    assert page.texts(".places mark")[0] == HOSTILE_TEXT[-16:]
    assert page.texts(".places .text-box")[0].endswith(
        f"{HOSTILE_TEXT[-16:]} ▯"
    )  # a character that turns the text around
    assert page.browser.title == "Suffolk datastores"
    assert page.all(".places img, .places script, #marks img") == []
    assert page.messages() == []


def test_several_datastores_are_searched_as_one(page: Page, url: str) -> None:
    look_up(page, url, "one two ", "code + wiki")
    shown = figures(page)
    assert (shown["occurrences"], shown["in code"], shown["in wiki"]) == ("3", "2", "1")
    assert page.texts(".legend li") == ["code", "wiki"]
    assert nodes(page)[0] == '"three", 2 occurrences, 67 % of the match, code 1, wiki 1'
    assert any(" · wiki · token 0 · license" in each for each in page.texts(".places .origin"))


def test_keys_move_in_the_tree_and_choose_a_path(page: Page, url: str) -> None:
    look_up(page, url, "one two ")
    page.run("arguments[0].focus()", page.one(".tree [role=treeitem][tabindex='0']"))
    page.press(RIGHT, RIGHT, ENTER)
    page.wait_for("#places-card h2", "Where one·two·fou occurs")
    assert page.texts(".places b") == ["b.py"]
    add, back = page.all("#places-card button")
    page.activate(back)
    page.wait_for("#places-card h2", "Where one·two· occurs")
    page.activate(page.all(".tree [role=treeitem]")[0])
    page.until(lambda: page.all("#places-card button"))
    page.activate(page.all("#places-card button")[0])
    settle(page, "one two f")
    assert page.focused().get_attribute("id") == "text"


def test_a_text_that_ends_inside_a_token_is_completed(page: Page, url: str) -> None:
    look_up(page, url, "one two thr")
    assert figures(page)["longest match"] == "0 of 9 tokens"
    assert page.texts("#completions button") == ["three 1"]
    page.click("#completions button")
    page.until(lambda: page.one("#text").get_property("value") == "one two three")
    settle(page, "one two three")
    assert figures(page)["longest match"] == "9 of 9 tokens"
    assert page.all("#completions button") == []


def test_an_answer_that_comes_late_is_dropped(page: Page, url: str) -> None:
    look_up(page, url, "one")
    page.run(
        """const call = window.fetch;
        const released = new Promise((resolve) => { window.release = resolve; });
        window.fetch = async (path, request) => {
          if (JSON.parse(request.body ?? "{}").text !== "one two") return call(path, request);
          const reply = await call(path, { ...request, signal: undefined });
          window.isHeld = true;
          await released;
          setTimeout(() => { window.isLate = true; }, 50);
          return reply;
        };"""
    )
    page.write("#text", "one two")
    page.until(lambda: page.run("return window.isHeld"))
    page.write("#text", "vu")
    settle(page, "vu")
    page.run("window.release()")
    page.until(lambda: page.run("return window.isLate"))
    assert page.texts(".places b") == ["é.txt"]
    assert figures(page)["longest match"] == "2 of 2 tokens"


def test_the_page_fits_a_phone(page: Page, url: str) -> None:
    metrics = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        look_up(page, url, "one " + "x" * 200 + " two")
        assert page.run("return document.documentElement.scrollWidth") == 360
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_keys_of_callers_and_occurrences_that_are_off(page: Page, folder: Path, tmp_path: Path) -> None:
    key = add_token(tmp_path / "access.toml", "reader", {"default": Role.READ})
    with serving(folder, "--access", str(tmp_path / "access.toml"), "--occurrences", "off") as server:
        page.open(f"http://{server.endpoint('http')}/")
        page.wait_for("#notice", "This server needs an API key.")
        page.write("#key", "wrong\t")
        page.wait_for("#notice", "The server does not accept this API key.")
        assert page.one("#key").get_attribute("aria-invalid") == "true"
        page.write("#key", f"{key}\t")
        page.until(lambda: page.all("#store option") and not page.one("#notice").is_displayed())
        page.write("#text", "one two")
        page.wait_for("#places-card", "this server shows no occurrences; ask its operator for --occurrences on")
        assert len(nodes(page)) > 4


def test_a_connection_that_is_lost_and_comes_back(page: Page, url: str) -> None:
    relay = Relay(url.removeprefix("http://").strip("/"))
    look_up(page, f"http://{relay.address}/", "one two ")
    relay.close()
    page.one("#text").send_keys("f")
    page.wait_for("#notice", "No connection to the server. Trying again …")
    assert page.one("#text").get_property("value") == "one two f"
    assert page.texts(".places b")  # the last answer stays
    relay.open()
    page.until(lambda: not page.one("#notice").is_displayed())
    settle(page, "one two f")
    assert page.texts(".places b") == ["b.py"]
    relay.close()
