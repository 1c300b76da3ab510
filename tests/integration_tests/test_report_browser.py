"""The report in a real browser: no console errors, no serious accessibility fault in light and dark, usable by keyboard, harmless, quick."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from procedures import compactor, history, snapshot, summariser, work

from langgraph_roundcompact.dump import MemoryRecorder
from langgraph_roundcompact.report import render_report
from langgraph_roundcompact.testing import ScriptedChatModel
from langgraph_roundcompact.tiers import DEFAULT_TIERS

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed; it is in the test dependency group")
axe = pytest.importorskip("selenium_axe_python", reason="selenium-axe-python is not installed; it is in the test dependency group")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip

ATTACK = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">\x1b[31mred\x1b[0m {{7*7}}"
NEEDLE = "needle-in-the-middle"

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and CHROMEDRIVER), reason="chromium or chromedriver is missing; Debian: apt-get install chromium chromium-driver"
)


def _records() -> list[dict[str, Any]]:
    """Two threads: several checkpoints with hostile texts, folds, a failure, and checks that did nothing."""
    recorder = MemoryRecorder()

    def run(thread: str, talks: list[list[Any]], **more: Any) -> None:
        subject = compactor(more.pop("model", None) or summariser("NOTES"), enable_compression_dump=True, **more)
        subject._ports.write_dump = recorder
        for talk in talks:
            subject.compact(talk, thread_id=thread)

    hostile = [HumanMessage(ATTACK, id="h"), AIMessage(ATTACK, id="a0"), ToolMessage(ATTACK + "x" * 900 + NEEDLE, tool_call_id="c0", id="t0")]
    rejecting = ScriptedChatModel(replies=["", *[snapshot(f"Half done. {ATTACK}")] * 9])
    run("first <b>thread</b>", [history(), [*hostile, *work(1), *work(2)], history(1), history(3, 4)], model=rejecting)
    fold = [*history(1, 2, 3), *work(4, 200), *work(5, 200), *work(6, 200), *work(7, 6000)]
    run("second", [fold, history(1)], tiers=DEFAULT_TIERS, trigger=4000, window=5000, keep_recent_messages=None)
    run("third", [history(1, 2)], model=ScriptedChatModel(replies=["", ""], strict=True))
    return recorder.records


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_report(_records()), "utf-8", errors="replace")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(CHROMEDRIVER))
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture
def show(browser: Any) -> Callable[..., Any]:
    """Opens a page at a width, in light or dark."""

    def opened(address: str, *, width: int = 1280, scheme: str = "light", height: int = 900) -> Any:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        browser.get("about:blank")
        browser.get_log("browser")
        browser.get(address)
        return browser

    return opened


def open_all(browser: Any) -> None:
    browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    time.sleep(0.2)


def press(browser: Any, keys: str) -> None:
    browser.switch_to.active_element.send_keys(keys)
    time.sleep(0.4)


SIZES = pytest.mark.parametrize("width", [1280, 390])
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])


@SIZES
@SCHEMES
def test_nothing_is_logged_and_nothing_overflows(show: Callable[..., Any], page: str, width: int, scheme: str) -> None:
    browser = show(page, width=width, scheme=scheme)
    open_all(browser)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@SIZES
@SCHEMES
@pytest.mark.parametrize("opened", [False, True], ids=["closed", "all open"])
def test_axe_finds_no_serious_fault(show: Callable[..., Any], page: str, width: int, scheme: str, opened: bool) -> None:
    browser = show(page, width=width, scheme=scheme)
    if opened:
        open_all(browser)
    checker = axe.Axe(browser)
    checker.inject()
    found = checker.run()
    # Contrast that cannot be computed (text over the picture's lines) is looked at by eye; every other doubt counts.
    doubts = [one for one in found["incomplete"] if one["id"] != "color-contrast"]
    violations = [one for one in (*found["violations"], *doubts) if one["impact"] in ("serious", "critical")]
    assert violations == [], checker.report(violations)


@SIZES
@SCHEMES
def test_the_picture_is_not_blank(show: Callable[..., Any], page: str, width: int, scheme: str, tmp_path: Path) -> None:
    browser = show(page, width=width, scheme=scheme)
    shot = tmp_path / f"{width}-{scheme}.png"
    assert browser.save_screenshot(str(shot))
    # A blank page of this size packs into some five kilobytes.
    assert shot.stat().st_size > 20_000
    shown = "return getComputedStyle(document.body).backgroundColor"
    assert browser.execute_script(shown) == ("rgb(246, 245, 242)" if scheme == "light" else "rgb(19, 22, 26)")
    drawn = "return [...document.querySelectorAll('svg.chart')].filter((one) => one.getBoundingClientRect().height > 100).length"
    assert browser.execute_script(drawn) == 3  # each thread in one size


def test_text_from_outside_does_nothing(show: Callable[..., Any], page: str) -> None:
    browser = show(page)
    open_all(browser)
    assert browser.title == "Compaction report"
    assert browser.execute_script("return document.querySelectorAll('img, script:not([type]), b > thread').length") == 1
    assert browser.execute_script("return [...document.querySelectorAll('pre')].some((one) => one.textContent.includes('</script><script>'))")


def test_long_texts_are_put_in_place_when_they_are_opened(show: Callable[..., Any], page: str) -> None:
    browser = show(page)
    filled = "return [...document.querySelectorAll('pre[data-ref]')].filter((one) => one.textContent).length"
    assert browser.execute_script(filled) == 0
    browser.execute_script("document.querySelector('li.msg > details:has(pre[data-ref])').open = true")
    time.sleep(0.2)
    assert browser.execute_script(filled) == 1


def test_the_keyboard_reaches_everything(show: Callable[..., Any], page: str) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = show(page)
    press(browser, Keys.TAB)
    skip = browser.switch_to.active_element
    assert skip.text == "Skip to the report"
    assert skip.rect["y"] >= 0
    press(browser, Keys.ENTER)
    assert browser.execute_script("return document.activeElement.id") == "main"
    press(browser, "/")
    assert browser.execute_script("return document.activeElement.id") == "q"
    ring = "const one = getComputedStyle(document.activeElement); return one.outlineStyle + one.outlineWidth"
    assert browser.execute_script(ring) == "solid3px"


def test_the_search_finds_what_is_not_on_the_screen_and_escape_brings_all_back(show: Callable[..., Any], page: str) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = show(page)
    rows = "return [...document.querySelectorAll('.card')].filter((one) => one.checkVisibility()).length"
    before = browser.execute_script(rows)
    press(browser, "/")
    press(browser, NEEDLE)
    assert browser.execute_script("return document.getElementById('found').textContent") != "Nothing found"
    assert 0 < browser.execute_script(rows) < before
    assert NEEDLE in browser.execute_script("return [...document.querySelectorAll('.msg')].filter((one) => one.checkVisibility())[0].textContent")
    assert browser.execute_script("return document.querySelector('.hits:not([hidden])').textContent").endswith(("match", "matches"))
    press(browser, "-that-is-nowhere")
    assert browser.execute_script("return document.getElementById('found').textContent") == "Nothing found"
    press(browser, Keys.ESCAPE)
    assert browser.execute_script(rows) == before
    assert browser.execute_script("return document.getElementById('found').textContent") == ""


def test_the_theme_can_be_chosen_against_the_systems(show: Callable[..., Any], page: str) -> None:
    browser = show(page, scheme="light")
    button, shown = browser.find_element("id", "theme"), "return getComputedStyle(document.body).backgroundColor"
    seen = []
    for _ in range(3):
        button.click()
        seen.append((button.text, browser.execute_script(shown)))
    assert seen == [("Theme: dark", "rgb(19, 22, 26)"), ("Theme: light", "rgb(246, 245, 242)"), ("Theme: system", "rgb(246, 245, 242)")]


def test_a_drop_in_the_picture_leads_to_its_checkpoint(show: Callable[..., Any], page: str) -> None:
    browser = show(page)
    browser.execute_script("document.querySelectorAll('.card > details').forEach((one) => { one.open = false; })")
    browser.find_element("css selector", "svg.chart.wide a[href='#c2']").send_keys("\ue007")
    time.sleep(0.3)
    assert browser.execute_script("return document.querySelector('#c2 > details').open")
    assert browser.execute_script("return document.activeElement.closest('.card').id") == "c2"


def test_twenty_megabytes_of_a_hundred_compactions_open_and_can_be_searched(show: Callable[..., Any], tmp_path: Path) -> None:
    record = next(one for one in _records() if one["kind"] == "compaction")

    def message(number: int) -> dict[str, Any]:
        text = f"{number} " + "a line of output\n" * 240 + (NEEDLE if number == 2500 else "")
        return {**ToolMessage(text, tool_call_id=f"c{number}").model_dump(), "tokens": 1000}

    records = [{**record, "spans": {**record["spans"], "replaced": [message(i * 50 + j) for j in range(50)]}} for i in range(100)]
    source = render_report(records)
    assert len(source) > 20_000_000
    path = tmp_path / "big.html"
    path.write_text(source, "utf-8", errors="replace")
    began = time.monotonic()
    browser = show(path.as_uri())
    assert browser.execute_script("return document.querySelectorAll('.card').length") == 100
    assert time.monotonic() - began < 20
    began = time.monotonic()
    press(browser, "/")
    press(browser, NEEDLE)
    assert browser.execute_script("return [...document.querySelectorAll('.card')].filter((one) => one.checkVisibility()).length") >= 1
    assert "Nothing" not in browser.execute_script("return document.getElementById('found').textContent")
    assert time.monotonic() - began < 10
    assert browser.get_log("browser") == []
