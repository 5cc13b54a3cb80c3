"""The page answers this machine alone, under its names, and whatever is sent to it."""

import http.client
import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tercet.tools.play.sessions import Session, abilities_of

pytest.importorskip("gradio", reason="gradio is not installed: pip install 'tercet[play]'")
from tercet.tools.play.page import serve

JOIN = "/gradio_api/queue/join"


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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page, address = serve(Session([load("encoder")]), port=port, wait=False)
    yield Client(address)
    page.close()


def test_a_page_refuses_other_hosts_and_files(client):
    assert client.request("GET", "/", Host="localhost:7860")[0] == 200
    assert client.request("GET", "/", Host="evil.example")[0] == 400
    head = 'Content-Disposition: form-data; name="files"; filename="a"'
    file = f"--b\r\n{head}\r\n\r\nx\r\n--b--\r\n"
    as_form = {"Content-Type": "multipart/form-data; boundary=b"}
    assert client.request("POST", "/gradio_api/upload", file, **as_form)[0] == 413


def test_a_page_answers_what_it_sends_itself_and_no_other_page(client):
    port = client.netloc.rpartition(":")[2]
    own = [("127.0.0.1", f"http://127.0.0.1:{port}"), ("localhost", f"http://LOCALHOST:{port}")]
    for host, origin in own:
        assert client.request("GET", "/", Host=f"{host}:{port}", Origin=origin)[0] == 200
    function = client.functions("click")[0]
    asked = f'{{"data": ["The ___ sat.", 3], "fn_index": {function}, "session_hash": "another"}}'
    requests = [
        ("POST", JOIN),
        ("POST", "/queue/join"),
        ("POST", "/gradio_api/run/predict"),
        ("POST", "/gradio_api/upload"),
        ("GET", "/gradio_api/queue/data?session_hash=me"),
        ("GET", "/config"),
        ("GET", "/"),
    ]
    others = ["http://evil.example", f"http://evil.example:{port}", "null", "http://localhost:1", "https://x"]
    others += [f"https://{client.netloc}", f"http://localhost:{port}", f"http://{client.netloc}.evil.example"]
    for method, path in requests:
        for origin in others:
            body = asked if method == "POST" else None
            for kind in (
                "application/json",
                "text/plain",
            ):  # a page may send plain text without asking before
                headers = {"Origin": origin, "Content-Type": kind}
                assert client.request(method, path, body, **headers)[0] == 403, (method, path, origin)
    assert client.request("POST", JOIN, asked, Origin=f"http://{client.netloc}")[0] == 200


@pytest.mark.parametrize("start", ["file", "gradio_api/file", "proxy", "gradio_api/proxy"])
def test_a_page_hands_out_no_file_and_fetches_no_address(start, client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    secret = tmp_path / "secret.txt"
    secret.write_text("what nobody may see")
    Path("report.html").write_text("what nobody may see")
    addresses = (f"http://{client.netloc}/config", "http://example.com/")
    for name in (secret, "secret.txt", "report.html", "./report.html", *addresses):
        status, text = client.request("GET", f"/{start}={name}")
        assert status == 403, (name, status)
        assert "nobody" not in text


def test_a_page_is_bound_to_this_machine_whatever_the_environment_says(load, monkeypatch):
    launched = {}

    def launch(page, **options):
        launched.update(options)
        return None, "http://127.0.0.1:1/", None

    monkeypatch.setattr("gradio.Blocks.launch", launch)
    serve(Session([load("encoder")]), wait=False)
    assert (launched["server_name"], launched["share"]) == ("127.0.0.1", False)


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


def test_an_example_fills_the_fields(client, load):
    for number, (text,) in enumerate(abilities_of(load("encoder"))["fill"].examples):
        filled = client.answer(f"[{number}]", "load_example")
        assert filled["value"] == text
