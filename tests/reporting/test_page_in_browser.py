"""The page in a browser: layout, keyboard, dark, print, no errors. Skipped where there is no Chromium."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

WIDTHS = (360, 768, 1280)


def shown(browser: Any, page: Path, *, width: int = 1280, scheme: str = "light", scripts: bool = True) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    browser.get(page.as_uri())


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(browser: Any, page: Path, width: int) -> None:
    shown(browser, page, width=width)
    wide = browser.execute_script(
        """
        for (const details of document.querySelectorAll("details")) details.open = true;
        const boxes = ".wide, .drawing";
        return [...document.querySelectorAll("body *")]
          .filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
          .filter((e) => !e.parentElement.closest(boxes)).map((e) => e.outerHTML.slice(0, 80));
        """
    )
    assert wide == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_no_errors_and_no_requests(browser: Any, page: Path) -> None:
    browser.get_log("browser")
    shown(browser, page)
    assert browser.get_log("browser") == []
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_text_of_figures_stays_readable_on_a_telephone(browser: Any, page: Path) -> None:
    shown(browser, page, width=360)
    smallest = browser.execute_script(
        """
        return Math.min(...[...document.querySelectorAll("figure svg text")].map((text) =>
          parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a).filter((size) => size > 0));
        """
    )
    assert smallest >= 5.5


def column(browser: Any, table: int, number: int) -> list[str]:
    return list(
        browser.execute_script(
            "return [...document.querySelectorAll('table')[arguments[0]].tBodies[0].rows]"
            ".map((row) => row.cells[arguments[1]].dataset.value)",
            table,
            number,
        )
    )


def test_tables_sort_by_keyboard(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    shown(browser, page)
    browser.execute_script("for (const details of document.querySelectorAll('details')) details.open = true")
    place = browser.execute_script(
        "return [...document.querySelectorAll('table')].findIndex((t) => t.caption.textContent === 'macro F1 ↑')"
    )
    table = browser.find_elements(By.TAG_NAME, "table")[place]
    header = table.find_elements(By.CSS_SELECTOR, "thead th")[1]
    button = header.find_element(By.TAG_NAME, "button")
    # From the header before it, as the Tab key goes.
    table.find_element(By.CSS_SELECTOR, "thead th button").send_keys(Keys.TAB)
    assert browser.switch_to.active_element == button
    foot = table.find_element(By.TAG_NAME, "tfoot").text
    before = column(browser, place, 1)
    button.send_keys(Keys.ENTER)
    assert column(browser, place, 1) == sorted(before, key=float)
    assert header.get_attribute("aria-sort") == "ascending"
    browser.switch_to.active_element.send_keys(Keys.SPACE)
    assert column(browser, place, 1) == sorted(before, key=float, reverse=True)
    assert header.get_attribute("aria-sort") == "descending"
    assert table.find_element(By.TAG_NAME, "tfoot").text == foot
    outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def luminance(browser: Any, selector: str, name: str) -> float:
    colour = browser.execute_script(
        "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]].match(/[\\d.]+/g).map(Number)",
        selector,
        name,
    )
    linear = [c / 3294.6 if c <= 10.31 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(browser: Any, page: Path, scheme: str) -> None:
    shown(browser, page, scheme=scheme)
    behind = luminance(browser, "body", "backgroundColor")
    assert (behind < 0.1) == (scheme == "dark")
    for selector, name, least in [
        ("body", "color", 7.0),
        ("figcaption", "color", 4.5),
        ("nav a", "color", 4.5),
        ("figure svg text", "fill", 4.5),
    ]:
        assert contrast(luminance(browser, selector, name), behind) >= least, selector
    browser.execute_script("document.body.append(Object.assign(document.createElement('i'), {id: 'probe'}))")
    for number in range(8):
        browser.execute_script(f"document.getElementById('probe').style.color = 'var(--series-{number})'")
        assert contrast(luminance(browser, "#probe", "color"), behind) >= 3.0, f"series {number}"


def test_the_page_is_whole_without_scripts(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.by import By

    shown(browser, page, scripts=False)
    try:
        assert browser.find_elements(By.CSS_SELECTOR, "th button") == []
        assert "In short" in browser.find_element(By.TAG_NAME, "body").text
        assert len(browser.find_elements(By.CSS_SELECTOR, "figure svg")) > 10
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_print_is_light_and_unfolded(browser: Any, page: Path) -> None:
    shown(browser, page, scheme="dark")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert luminance(browser, "body", "color") < 0.01
        assert browser.execute_script("return getComputedStyle(document.querySelector('nav')).display") == "none"
        printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
        assert printed[:4] == b"%PDF"
        fold = """for (const each of document.querySelectorAll("details")) each.open = false;
            return [...document.querySelectorAll("details")].map(each =>
                each.getBoundingClientRect().height / each.querySelector("summary").getBoundingClientRect().height)"""
        # By the style alone where a browser knows how, by the script where it does not.
        assert min(browser.execute_script(fold)) > 3
        opened = """dispatchEvent(new Event("beforeprint"));
            return [...document.querySelectorAll("details")].every(each => each.open)"""
        assert browser.execute_script(opened)
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
