"""The page answers what it sends itself, under the names of its machine, and in one line what fails."""

import asyncio
import http.client
import json
import socket
from urllib.parse import urlsplit

import pytest

from tercet.play.page import MOST_BYTES, Gate, hosts_of
from tercet.play.sessions import Session

JOIN = "/gradio_api/queue/join"


class Answers:
    """What an application sends; calls of the application behind the gate are counted."""

    def __init__(self, hosts=frozenset({"localhost"}), error: Exception | None = None):
        self.sent: list[dict] = []
        self.calls = 0
        self.error = error
        self.gate = Gate(self.application, hosts)

    async def application(self, scope, receive, send):
        self.calls += 1
        if self.error:
            raise self.error
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def note(self, message):
        self.sent.append(message)

    def status(self, path="/", method="GET", host="localhost:7860", **headers):
        raw = [
            (b"host", host.encode()),
            *((name.encode(), value.encode()) for name, value in headers.items()),
        ]
        self.sent.clear()
        scope = {"type": "http", "method": method, "path": path, "headers": raw}
        asyncio.run(self.gate(scope, None, self.note))
        return self.sent[0]["status"]


@pytest.mark.parametrize(
    ("host", "asked", "is_answered"),
    [
        ("localhost:7860", "127.0.0.1", True), ("127.0.0.1", "127.0.0.1", True), ("[::1]:80", "::1", True),
        ("LOCALHOST", "127.0.0.1", True), ("box.lan:7860", "box.lan", True), ("[fe80::1]", "[fe80::1]", True),
        ("evil.example:7860", "127.0.0.1", False), ("", "127.0.0.1", False), ("[", "127.0.0.1", False),
        ("localhost.evil.example", "127.0.0.1", False), ("box.lan", "127.0.0.1", False),
        ("anything.example", "0.0.0.0", True), ("anything.example", "::", True),
    ],
)  # fmt: skip
def test_a_page_answers_under_the_names_of_its_machine_alone(host, asked, is_answered):
    answers = Answers(hosts_of(asked, share=False))
    assert answers.status(host=host) == (200 if is_answered else 421)
    assert answers.calls == is_answered


def test_a_shared_page_has_any_name():
    assert Answers(hosts_of("127.0.0.1", share=True)).status(host="x.gradio.live") == 200


def test_what_the_page_does_not_send_is_refused():
    answers = Answers()
    for path in ("/gradio_api/upload", "/gradio_api/component_server", "/login", "/gradio_api/queue/join/x"):
        assert answers.status(path, "POST", **{"content-length": "1"}) == 404
    assert answers.status("/", "PUT", **{"content-length": "1"}) == 404
    assert answers.status(JOIN, "POST") == 411
    assert answers.status(JOIN, "POST", **{"content-length": str(MOST_BYTES + 1)}) == 413
    assert answers.calls == 0
    for path in (JOIN, f"{JOIN}/", "/gradio_api/cancel", "/gradio_api/reset"):
        assert answers.status(path, "POST", **{"content-length": "9"}) == 200


def test_what_fails_behind_the_gate_is_one_line(capsys):
    assert Answers(error=KeyError("fn_index")).status("/x") == 500
    assert capsys.readouterr().err == "tercet play: GET '/x' failed (KeyError: 'fn_index')\n"


class Client:
    """A browser's part of the conversation with the page."""

    def __init__(self, address: str):
        self.netloc = urlsplit(address).netloc

    def request(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.netloc, timeout=60)
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def functions(self, event: str) -> list[int]:
        """Number what buttons and examples do, in the order of the tabs."""
        events = json.loads(self.request("GET", "/config")[1])["dependencies"]
        kinds = {"click": 1, "load_example": 0}
        assert event in kinds
        outputs = [each for each in events if ["click" in target for target in each["targets"]] == [True]]
        return [each["id"] for each in outputs][kinds[event] :: 2]

    def answer(self, data: str, event: str = "click") -> str:
        """Press a button with the values of its fields, as JSON, and give the page's answer."""
        function = self.functions(event)[0]
        status, text = self.request(
            "POST", JOIN, f'{{"data": {data}, "fn_index": {function}, "session_hash": "me"}}'
        )
        assert status == 200, text
        _, events = self.request("GET", "/gradio_api/queue/data?session_hash=me")
        lines = [line.removeprefix("data: ") for line in events.splitlines() if line.startswith("data: ")]
        done = next(event for event in map(json.loads, lines) if event["msg"] == "process_completed")
        assert done["success"], done
        return done["output"]["data"][0]


@pytest.fixture(scope="module")
def client(load):
    pytest.importorskip("gradio", reason="gradio is not installed: pip install 'tercet[play]'")
    from tercet.play.page import serve

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page, address = serve(Session([load("encoder")]), port=port, wait=False)
    yield Client(address)
    page.close()


def test_a_page_refuses_other_hosts_and_files(client):
    assert client.request("GET", "/")[0] == 200
    assert client.request("GET", "/", Host="evil.example")[0] == 421
    assert client.request("POST", "/gradio_api/upload", "x")[0] == 404


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ('["The ___ sat.", 3]', "In the gap"),
        ('["The ___ sat.", 10000]', "Top is 10000: choose a number from 1 to 50"),
        ('["The ___ sat.", null]', "Top is None: choose a number"),
        ('["The ___ sat.", [1]]', "Top is [1]: choose a number"),
        ('["___ \\ud800", 3]', "which is no character: write it anew"),
        ('[null, 3]', "A text with gaps (___) is empty"),
        ('[{"a": 1}, 3]', "has no gap"),
        (json.dumps(["<b>___</b> " * 20_000, 3]), "A text with gaps (___) has 220,000 characters"),
        (json.dumps(["<img src=x>", 3]), "&lt;img src=x&gt;"),
    ],
)  # fmt: skip
def test_whatever_is_sent_is_answered_without_a_traceback(data, said, client, capsys):
    written = client.answer(data)
    assert said in written
    assert "<img" not in written
    assert capsys.readouterr().err == ""


def test_an_example_fills_the_fields_whatever_is_sent(client, capsys):
    first = client.answer("[0]", "load_example")
    assert client.answer("[1]", "load_example") != first
    for number in ("[99]", "[null]", '["x"]', "[-1]"):
        assert client.answer(number, "load_example") == first
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("host", "port"),
    [("no host", None), ("x" * 300, None), ("192.0.2.1", None), ("127.0.0.1", 99999), ("127.0.0.1", -5)],
)
def test_an_address_that_is_none_is_refused_at_once(host, port):
    pytest.importorskip("gradio", reason="gradio is not installed: pip install 'tercet[play]'")
    from tercet.play.page import serve

    with pytest.raises(ValueError, match=r"cannot be served .* choose another --port or --host"):
        serve(None, host=host, port=port)
