"""What the Hub on this machine remembers: repositories of models and Spaces, and large files."""

import hashlib
import threading
from dataclasses import dataclass, field

TOKEN = "hf_secretOfTheOwner"


@dataclass
class Repository:
    """Branches of commits; a commit is an id and its files by their names."""

    private: bool
    sdk: str | None = None
    """Of a Space."""
    branches: dict[str, list[tuple[str, dict[str, bytes]]]] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        number = sum(map(len, self.branches.values()))
        oid = hashlib.sha1(repr((number, sorted(files))).encode()).hexdigest()
        self.branches.setdefault(branch, []).append((oid, files))
        return oid

    def find(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        if revision in self.branches:
            return self.branches[revision][-1]
        return next((c for commits in self.branches.values() for c in commits if c[0] == revision), None)


@dataclass
class Hub:
    """The server's memory, and what a test wants it to do."""

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=lambda: {TOKEN: "me"})
    room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(2**31))
    """For large files and parts; once it is used up, connections break."""
    part_size: int = 2**40
    """Larger files come in parts of this size."""

    def files(self, repo: str, branch: str = "main") -> dict[str, bytes]:
        return self.repositories[repo].branches[branch][-1][1]

    def uploads(self) -> int:
        return sum(method == "PUT" for method, _ in self.requests)
