"""Headless Chromium for tests of web pages. Debian's packages chromium and chromium-driver; without them the tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

RIGHT, ENTER = "\ue014", "\ue007"
"""Selenium's codes of keys."""
HANG = 300.0
"""Timeout in seconds. Two answers of a real model take minutes on a machine with much other work; only a hang takes longer."""
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None or find_spec("selenium") is None,
    reason="needs Chromium, its driver and Selenium: apt-get install chromium chromium-driver; pip install selenium",
)
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=1200,900",
)  # fmt: skip


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A browser (``selenium.webdriver.Chrome``) with the new, empty folder ``profile``."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield browser
    finally:
        browser.quit()


class Page:
    """One page in a browser, found by CSS selectors."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser

    def open(self, url: str) -> None:
        """Open ``url`` in the window, and forget the messages of the page before."""
        self.browser.get(url)
        self.messages()

    def all(self, selector: str) -> list[Any]:
        return list(self.browser.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        """The first element of ``selector``, once it is there."""
        return self.until(lambda: next(iter(self.all(selector)), None))

    def text(self, selector: str) -> str:
        return str(self.one(selector).text)

    def texts(self, selector: str) -> list[str]:
        """The text of each element, without changes for the screen, all at one moment."""
        script = "return Array.from(document.querySelectorAll(arguments[0]), (each) => each.textContent)"
        return [str(each) for each in self.run(script, selector)]

    def click(self, selector: str) -> None:
        self.one(selector).click()

    def write(self, selector: str, text: str) -> None:
        """Replace the value of a field."""
        field = self.one(selector)
        field.clear()
        field.send_keys(text)

    def press(self, *keys: str) -> None:
        """Press keys in the element that has the focus."""
        self.browser.switch_to.active_element.send_keys(*keys)

    def activate(self, element: Any) -> None:
        """Focus an element, and press Enter."""
        self.run("arguments[0].focus()", element)
        self.press(ENTER)

    def focused(self) -> Any:
        return self.browser.switch_to.active_element

    def until(self, condition: Callable[[], Any]) -> Any:
        """The value of ``condition()`` once it is true. Fails at the timeout, which only a hang reaches."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.browser, HANG, 0.02).until(lambda _: condition())

    def wait_for(self, selector: str, text: str) -> None:
        """Wait until the text of ``selector`` contains ``text``."""
        self.until(lambda: any(text in each for each in self.texts(selector)))

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a script returns."""
        return self.browser.execute_script(script, *arguments)

    def messages(self) -> list[str]:
        """Warnings and errors of the console since the last call, among them violations of the content security policy."""
        return [each["message"] for each in self.browser.get_log("browser")]
