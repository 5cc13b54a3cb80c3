"""Checks of pages in a real browser: what is too wide, cut off, covered by something else, or too small."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WIDTHS = {"phone": 390, "desk": 1280}
"""Screens -> CSS pixels."""

SCHEMES = ("light", "dark")

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars"
)

CHECKS = """
const problems = [], [leastTrack, width] = arguments, near = 1.5;
const box = element => element.getBoundingClientRect();
const named = element => `${element.tagName.toLowerCase()}.${element.getAttribute('class') || ''} `
  + JSON.stringify(element.textContent.trim().slice(0, 40));
const all = selector => [...document.querySelectorAll(selector)];
const overlap = (one, other) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > near
  && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > near;

if (document.documentElement.scrollWidth > width)
  problems.push(`the page is ${document.documentElement.scrollWidth} px wide`);
for (const element of all('main *'))
  if (!element.closest('.wide, figure') && box(element).right > width + near)
    problems.push(`beyond the screen: ${named(element)}`);
for (const element of all('.card, .card *, .example, .example *, .verdicts li'))
  if (element.scrollWidth > element.clientWidth + near && getComputedStyle(element).display !== 'inline')
    problems.push(`wider than its box: ${named(element)}`);
for (const parent of all('.card, .bar, .bars, dl, .verdicts')) {
  const children = [...parent.children];
  children.forEach((one, place) => children.slice(place + 1).forEach(other => {
    if (overlap(box(one), box(other))) problems.push(`on top of each other: ${named(one)}, ${named(other)}`);
  }));
}
for (const frame of all('.wide, figure'))
  if (frame.scrollWidth > frame.clientWidth + near && !getComputedStyle(frame).background.includes('local'))
    problems.push(`scrolls without a shadow at its edge: ${named(frame)}`);
for (const track of all('.track')) {
  const bar = track.querySelector('i'), widths = [box(track).width, box(bar).width];
  if (widths[0] < leastTrack || widths[1] < 3.5)
    problems.push(`a track of ${widths[0]} px with a bar of ${widths[1]} px: ${named(track.parentElement)}`);
}
for (const drawing of all('figure svg')) {
  const frame = box(drawing);
  for (const text of drawing.querySelectorAll('text')) {
    if (!text.textContent.trim()) continue;
    const own = box(text);
    if (own.left < frame.left - 3 || own.right > frame.right + 3 || own.top < frame.top - 3
        || own.bottom > frame.bottom + 3)
      problems.push(`cut off in a chart: ${named(text)}`);
    const size = parseFloat(getComputedStyle(text).fontSize) * frame.width / drawing.viewBox.baseVal.width;
    if (size < 6) problems.push(`${size.toFixed(1)} px high in a chart: ${named(text)}`);
  }
}
return problems;
"""
"""What is wrong with the page that is open; the arguments are the least width of a track and the screen's.

A phone zooms out of a page that is too wide: then `window.innerWidth` is that of the page.
"""

LEAST_TRACK = 120
"""CSS pixels of the track of a bar, from which its length can be read."""


class BrowserMissingError(LookupError):
    """There is no browser to look at pages with."""


@contextmanager
def browser() -> Iterator[Any]:
    """Start Debian's Chromium without a window.

    Raises:
        BrowserMissingError: It, its driver or selenium is not installed.
    """
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError as error:
        raise BrowserMissingError("selenium is not installed: pip install 'tercet[browser]'") from error
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        raise BrowserMissingError("chromium and chromium-driver are not installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        for flag in (*FLAGS.split(), f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.binary_location = program
        opened = webdriver.Chrome(options=options, service=Service(driver))
        try:
            yield opened
        finally:
            opened.quit()


def problems_of(opened: Any, page: Path, width: int, scheme: str = "light") -> list[str]:
    """Open a page at a width, and list what is wrong with it."""
    show(opened, page, width, scheme)
    return opened.execute_script(CHECKS, LEAST_TRACK, width)


def show(opened: Any, page: Path, width: int, scheme: str, height: int = 900) -> None:
    """Open a page on a screen of a size, in light or dark colours."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    colours = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", colours)
    opened.get(page.resolve().as_uri())


def photograph(opened: Any, page: Path, width: int, scheme: str, file: Path, most: int = 6000) -> None:
    """Save a picture of a page, from its top down to at most a height."""
    show(opened, page, width, scheme)
    height = min(opened.execute_script("return document.documentElement.scrollHeight"), most)
    show(opened, page, width, scheme, height)
    file.parent.mkdir(parents=True, exist_ok=True)
    opened.save_screenshot(str(file))
