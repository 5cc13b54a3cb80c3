"""A Hub on this machine: what `huggingface_hub` asks of the real one, answered over loopback from memory."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import torch
import yaml
from huggingface_hub import constants

from tercet.modeling import TercetDecoderConfig, TercetDecoderForCausalLM

from ...stock_models import SIZES
from .memory import TOKEN, Hub, Repository

LARGE = (".safetensors", ".png")
"""Endings of files that go ahead of the commit."""


class RefusedError(Exception):
    """An answer that is no success, with the code by which the client knows it."""

    def __init__(self, status: int, code: str = "", message: str = ""):
        self.status = status
        self.headers = {"X-Error-Code": code, "X-Error-Message": message} if code or message else {}


class Answers(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def answer(self) -> None:
        self.body = self.read_body()
        path = unquote(urlsplit(self.path).path)
        self.kind = "spaces/" if path.startswith(("/api/spaces/", "/spaces/")) else ""
        self.hub.requests.append((self.command, path))
        path = path.replace("/api/spaces/", "/api/models/", 1).removeprefix("/spaces")
        try:
            for method, pattern, handle in ROUTES:
                if self.command in method.split() and (match := re.fullmatch(pattern, path)):
                    handle(self, **match.groupdict())
                    return
            raise RefusedError(404, message=f"no such address: {path}")
        except RefusedError as refused:
            self.send(refused.status, {"error": refused.headers.get("X-Error-Message", "")}, refused.headers)

    do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def send(self, status: int, content: Any = None, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def user(self) -> str:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.hub.owners:
            raise RefusedError(401, message="Invalid credentials in Authorization header")
        return self.hub.owners.get(token, "")

    def repository(self, repo: str, *, to_write: bool = False) -> Repository:
        owner, user = repo.partition("/")[0], self.user()
        found = self.hub.repositories.get(self.kind + repo)
        if found is None or (found.private and owner != user):
            raise RefusedError(404 if user else 401, "RepoNotFound", "Repository not found")
        if to_write and owner != user:
            raise RefusedError(403, message=f"{user or 'nobody'} has no right to write")
        return found

    def commit(self, repo: str, revision: str) -> tuple[str, dict[str, bytes]]:
        found = self.repository(repo).find(revision)
        if found is None:
            raise RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return found

    def whoami(self) -> None:
        if not (user := self.user()):
            raise RefusedError(401, message="Invalid username or password.")
        self.send(200, {"type": "user", "name": user, "auth": {"accessToken": {"role": "write"}}})

    def create(self) -> None:
        asked = json.loads(self.body)
        owner = asked["organization"] or self.user()
        name = f"{owner}/{asked['name']}"
        repo = f"spaces/{name}" if asked.get("type") == "space" else name
        url = f"{self.hub.address}/{repo}"
        if not self.user():
            raise RefusedError(401, message="Invalid username or password.")
        if owner != self.user():
            raise RefusedError(403, message=f"You don't have the rights to create a model under {owner}")
        if repo in self.hub.repositories:
            self.send(409, {"error": "You already created this model repo", "url": url})
            return
        private = asked.get("private", False) or asked.get("visibility") == "private"
        self.hub.repositories[repo] = Repository(private, asked.get("sdk"))
        self.hub.repositories[repo].commit("main", {".gitattributes": b"*.safetensors filter=lfs\n"})
        self.send(200, {"url": url, "id": name, "name": name})

    def validate(self) -> None:
        metadata = yaml.safe_load(json.loads(self.body)["content"].split("---")[1])
        wrong = [] if isinstance(metadata.get("license", ""), str) else ["license must be a string"]
        self.send(400 if wrong else 200, {"errors": [{"message": text} for text in wrong], "warnings": []})

    def info(self, repo: str, revision: str | None = None) -> None:
        oid, files = self.commit(repo, revision or "main")
        siblings = [{"rfilename": name} for name in files]
        about = {"id": repo, "modelId": repo, "sha": oid, "siblings": siblings, "tags": []}
        self.send(200, about | {"private": self.repository(repo).private})

    def tree(self, repo: str, revision: str, folder: str | None = None) -> None:
        _, files = self.commit(repo, revision)
        if folder:
            raise RefusedError(404, "EntryNotFound", "Entry not found")
        rows = [{"type": "file", "path": n, "size": len(d), "oid": oid_of(n, d)} for n, d in files.items()]
        self.send(200, rows)

    def refs(self, repo: str) -> None:
        branches = self.repository(repo).branches
        rows = [
            {"name": name, "ref": f"refs/heads/{name}", "targetCommit": commits[-1][0]}
            for name, commits in branches.items()
        ]
        self.send(200, {"branches": rows, "tags": [], "converts": []})

    def branch(self, repo: str, branch: str) -> None:
        repository = self.repository(repo, to_write=True)
        if branch in repository.branches:
            raise RefusedError(409, message="Reference already exists")
        repository.commit(branch, dict(repository.branches["main"][-1][1]))
        self.send(200, {})

    def preupload(self, repo: str, revision: str) -> None:
        self.repository(repo, to_write=True)
        _, files = self.commit(repo, revision)
        rows = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                "shouldIgnore": False,
            }
            | ({"oid": oid_of(file["path"], files[file["path"]])} if file["path"] in files else {})
            for file in json.loads(self.body)["files"]
        ]
        self.send(200, {"files": rows})

    def batch(self, repo: str) -> None:
        self.repository(repo, to_write=True)
        rows = []
        for row in json.loads(self.body)["objects"]:
            href, size = f"{self.hub.address}/objects/{row['oid']}", self.hub.part_size
            numbers = range(1, -(-row["size"] // size) + 1)
            parts = {str(number): f"{href}/{number}" for number in numbers} | {"chunk_size": str(size)}
            upload = {"href": href} | ({"header": parts} if row["size"] > size else {})
            rows.append(row if row["oid"] in self.hub.objects else row | {"actions": {"upload": upload}})
        self.send(200, {"transfer": "basic", "objects": rows})

    def receive(self, oid: str, number: str | None = None) -> None:
        if not self.hub.room.acquire(blocking=False):
            raise ConnectionAbortedError
        if number is not None:
            self.hub.parts.setdefault(oid, {})[int(number)] = self.body
        else:
            self.keep(oid, self.body)
        self.send(200, b"", {"ETag": f'"{hashlib.md5(self.body).hexdigest()}"'})

    def complete(self, oid: str) -> None:
        parts = self.hub.parts.pop(oid)
        self.keep(oid, b"".join(parts[part["partNumber"]] for part in json.loads(self.body)["parts"]))
        self.send(200, {})

    def keep(self, oid: str, data: bytes) -> None:
        assert hashlib.sha256(data).hexdigest() == oid
        self.hub.objects[oid] = data

    def add_commit(self, repo: str, revision: str) -> None:
        repository = self.repository(repo, to_write=True)
        files = dict(self.commit(repo, revision)[1])
        for line in map(json.loads, self.body.splitlines()):
            key, value = line["key"], line["value"]
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
        oid = repository.commit(revision, files)
        url = f"{self.hub.address}/{self.kind}{repo}/commit/{oid}"
        self.send(200, {"commitUrl": url, "commitOid": oid})

    def resolve(self, repo: str, revision: str, name: str) -> None:
        oid, files = self.commit(repo, revision)
        if name not in files:
            raise RefusedError(404, "EntryNotFound", "Entry not found")
        data, headers, status = (
            files[name],
            {"X-Repo-Commit": oid, "ETag": f'"{oid_of(name, files[name])}"'},
            200,
        )
        if asked := re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(asked[1]), int(asked[2] or len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            data, status = data[first : last + 1], 206
        self.send(status, data, headers)


def oid_of(name: str, data: bytes) -> str:
    """Hash a small file as git does, and a large one as it is addressed."""
    small = hashlib.sha1(b"blob %d\0" % len(data) + data)
    return (hashlib.sha256(data) if name.endswith(LARGE) else small).hexdigest()


REPO, REVISION = r"(?P<repo>[^/]+/[^/]+)", r"(?P<revision>[^/]+)"
MODEL = rf"/api/models/{REPO}"
ROUTES = [
    ("GET", "/api/whoami-v2", Answers.whoami),
    ("POST", "/api/repos/create", Answers.create),
    ("POST", "/api/validate-yaml", Answers.validate),
    ("GET", rf"{MODEL}(/revision/{REVISION})?", Answers.info),
    ("GET", rf"{MODEL}/tree/{REVISION}(/(?P<folder>.+))?", Answers.tree),
    ("GET", rf"{MODEL}/refs", Answers.refs),
    ("POST", rf"{MODEL}/branch/(?P<branch>[^/]+)", Answers.branch),
    ("POST", rf"{MODEL}/preupload/{REVISION}", Answers.preupload),
    ("POST", rf"{MODEL}/commit/{REVISION}", Answers.add_commit),
    ("POST", rf"/{REPO}\.git/info/lfs/objects/batch", Answers.batch),
    ("PUT", r"/objects/(?P<oid>\w+)(/(?P<number>\d+))?", Answers.receive),
    ("POST", r"/objects/(?P<oid>\w+)", Answers.complete),
    ("GET HEAD", rf"/{REPO}/resolve/{REVISION}/(?P<name>.+)", Answers.resolve),
]


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[Hub]:
    """Start a Hub that the client in this process takes for the real one, with its owner's token."""
    hub = Hub()
    handler = type("Answers", (Answers,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield hub
    server.shutdown()
    server.server_close()


@pytest.fixture
def folder(tmp_path) -> Path:
    """Save a small decoder in several files."""
    torch.manual_seed(0)
    model = TercetDecoderForCausalLM(TercetDecoderConfig(vocab_size=61, **SIZES))
    model.save_pretrained(tmp_path / "saved", max_shard_size="30KB")
    return tmp_path / "saved"


@pytest.fixture
def impatience(monkeypatch):
    """Let the client try again at once."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
