"""The page in a real browser without a window: it answers, compares, reports nothing and fits its screen."""

import json
import os
import shutil
import socket
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tercet.__main__ import main
from tercet.tools.play.sessions import Session

pytest.importorskip("gradio", reason="gradio is not installed: pip install 'tercet[play]'")
from tercet.tools.play.page import answering, build_page, serve

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
WIDTHS = {"phone": 390, "desk": 1280}
PATIENCE = 60
"""Seconds for an answer."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def session(load) -> Session:
    return Session([load("encoder"), load("decoder")])


@pytest.fixture(scope="module")
def address(session) -> Iterator[str]:
    """Serve two models on a port of this machine."""
    page, address = serve(session, port=free_port(), wait=False)
    yield address
    page.close()


def test_a_button_computes_what_the_session_answers(session):
    written = answering(session, "fill", 1)("The ___ sat.", 3)
    assert written.count('class="number"') == 3
    assert "has no gap" in answering(session, "fill", 1)("The cat sat.", 3)


def test_every_ability_has_a_tab_and_its_first_example(session):
    config = build_page(session).get_config_file()
    labels = [each["props"].get("label") for each in config["components"] if each["type"] == "tabitem"]
    assert labels == [ability.title for ability in session.abilities.values()]
    values = {each["props"].get("elem_id"): each["props"].get("value") for each in config["components"]}
    for ability in session.abilities.values():
        assert values[f"{ability.name}-{ability.fields[0].name}"] == ability.examples[0][0]


def test_nothing_is_reported_and_nothing_comes_from_elsewhere(address):
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
    assert address.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(address) as answer:
        written = answer.read().decode()
    assert '"analytics_enabled":false' in written.replace(": ", ":")
    for elsewhere in ("cdnjs", "fonts.googleapis", "gstatic", "cdn."):
        assert elsewhere not in written


@pytest.mark.parametrize("port", ["taken", "99999", "-5"])
def test_a_port_that_is_taken_or_none_is_one_line(port, address, folders, capsys):
    port = address.rstrip("/").rpartition(":")[2] if port == "taken" else port
    assert main(["play", str(folders / "encoder"), f"--port={port}"]) == 2
    said = f"port {port} is taken, not permitted or not from 1 to 65535: choose another --port"
    assert said in capsys.readouterr().err.splitlines()[-1]


class Visitor:
    """A person at a browser."""

    def __init__(self, driver: Any, address: str, pictures: Path):
        self.driver, self.address, self.pictures = driver, address, pictures

    def resize(self, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def wait(self, condition: Any) -> Any:
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, PATIENCE).until(lambda _: condition())

    def visit(self, width: int) -> None:
        """Open the page, and wait until it has answered its first example."""
        self.resize(width)
        self.driver.get(self.address)
        self.wait(lambda: "%" in self.text("#answer-fill"))

    def text(self, selector: str) -> str:
        found = self.driver.find_elements("css selector", selector)
        return found[0].text if found else ""

    def open(self, title: str) -> None:
        """Choose a tab, in the menu of those that have no room if need be."""
        for _ in range(2):
            for button in self.driver.find_elements("css selector", "[role=tab], .overflow-dropdown button"):
                if button.is_displayed() and button.text == title:
                    button.click()
                    return
            self.find(".overflow-menu > button").click()
        raise AssertionError(f"there is no tab {title}")

    def ask(self, name: str, field: str, text: str) -> str:
        """Write into a field, press the button, and give the answer that follows."""
        before = self.text(f"#answer-{name}")
        area = self.find(f"#{name}-{field} textarea")
        area.clear()
        area.send_keys(text)
        self.find(f"#run-{name}").click()
        self.wait(lambda: self.text(f"#answer-{name}") not in ("", before))
        return self.text(f"#answer-{name}")

    def photograph(self, name: str, width: int) -> None:
        """Save a picture of the whole page, whose content must not be wider than the screen."""
        height = self.driver.execute_script("return document.documentElement.scrollHeight")
        self.resize(width, height)
        self.driver.save_screenshot(str(self.pictures / f"{name}-{width}.png"))
        self.resize(width)
        widths = self.driver.execute_script(
            "return [...document.querySelectorAll('body, main, .play, .answer, .tokens, .ranking .bar')]"
            ".map(each => Math.round(each.getBoundingClientRect().right))"
        )
        assert self.driver.execute_script("return document.documentElement.scrollWidth") <= width
        assert max(widths) <= width

    def foreign_requests(self) -> list[str]:
        """List the addresses beyond this machine that the page asked."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [
            each["params"]["request"]["url"]
            for each in messages
            if each["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in sent if url.startswith("http") and not url.startswith(self.address)]


@pytest.fixture(scope="module")
def visitor(address, tmp_path_factory) -> Iterator[Visitor]:
    """Start Debian's Chromium; pictures go to TERCET_SCREENSHOTS, if that names a folder."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("chromium and chromium-driver are not installed")
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.binary_location = browser
    pictures = Path(os.environ.get("TERCET_SCREENSHOTS") or tmp_path_factory.mktemp("pictures"))
    pictures.mkdir(parents=True, exist_ok=True)
    program = webdriver.Chrome(options=options, service=Service(driver))
    yield Visitor(program, address, pictures)
    program.quit()


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_visitor_fills_a_gap_and_compares_two_models(visitor, session, width):
    visitor.visit(width)
    said = visitor.ask("fill", "text", "The cat ___ on the roof of the house.")
    (_, (_, ranking)), *_ = session.answers("fill", ["The cat ___ on the roof of the house."], {})
    for entry in ranking.entries:
        assert entry.text in said
        assert entry.shown in said
    visitor.photograph("fill", width)
    visitor.open("Similar texts")
    said = visitor.ask("similar", "query", "The little dog ran home.")
    assert said.index("encoder") < said.index("decoder")
    assert said.count("Most similar first") == 2
    columns = [each.rect for each in visitor.driver.find_elements("css selector", "#answer-similar .answer")]
    beside = columns[0]["y"] == columns[1]["y"] and columns[0]["x"] < columns[1]["x"]
    below = columns[0]["x"] == columns[1]["x"] and columns[0]["y"] < columns[1]["y"]
    assert below if width < 600 else beside
    visitor.photograph("similar", width)
    for title, name in (("Continue", "continue"), ("Tokens", "tokens")):
        visitor.open(title)
        assert visitor.ask(name, "text", "The little dog ran home.")
        visitor.photograph(name, width)
    assert visitor.foreign_requests() == []
    assert [entry for entry in visitor.driver.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.slow
def test_another_page_that_is_open_in_the_browser_gets_no_answer(visitor, tmp_path):
    (tmp_path / "index.html").write_text("<title>another page</title>")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    send = (
        "const [path, kind, done] = arguments; const headers = {'Content-Type': kind};"
        "fetch(path, {method: 'POST', headers, body: '{}'}).then(a => done(a.status), e => done(String(e)))"
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        visitor.driver.get(f"http://localhost:{server.server_port}/")
        assert visitor.driver.title == "another page"
        for kind in ("text/plain", "application/json"):
            for path in ("gradio_api/queue/join", "gradio_api/run/predict"):
                said = visitor.driver.execute_async_script(send, visitor.address + path, kind)
                assert said == 403 or "Failed to fetch" in said
        server.shutdown()


@pytest.mark.slow
def test_a_visitor_who_writes_no_gap_reads_one_message(visitor):
    visitor.visit(WIDTHS["phone"])
    said = visitor.ask("fill", "text", "The cat sat.")
    assert said == "'The cat sat.' has no gap: write ___ for the missing word, as in 'The ___ is blue.'"
    assert len(visitor.driver.find_elements("css selector", "#answer-fill [role=alert]")) == 1
    visitor.photograph("refusal", WIDTHS["phone"])
