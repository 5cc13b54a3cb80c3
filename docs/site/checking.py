"""The finished site, read as a browser would: links lead somewhere, and nothing comes from a network."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}
"""Elements for which a browser loads something, beside `link`, and the attribute that says what."""


@dataclass
class Document:
    """What a page refers to, by links or as loaded by a browser, and the anchors in it."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def has(self, anchor: str) -> bool:
        """Whether the page has a place of this name; the page itself has none."""
        return not anchor or anchor in self.anchors


class Reader(HTMLParser):
    """Collects the links and anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.document = Document()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.document.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.document.links.append(values["href"])
        elif tag in LOADED and LOADED[tag] in values:
            self.document.loaded.append(values[LOADED[tag]])
        elif tag == "link" and values.get("rel") in {"stylesheet", "icon", "preload", "preconnect"}:
            self.document.loaded.append(values["href"])


def check_site(folder: Path) -> list[str]:
    """List what is wrong with a site: links to nothing, and what would be loaded from a network."""
    root = folder.resolve()
    documents = {page: read(page) for page in sorted(root.rglob("*.html"))}
    return [
        f"{page.relative_to(root)}: {problem}"
        for page, document in documents.items()
        for problem in problems_of(page, document, documents, root)
    ]


def read(page: Path) -> Document:
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    return reader.document


def problems_of(page: Path, document: Document, documents: dict[Path, Document], root: Path) -> Iterator[str]:
    """Describe what is wrong with a page."""
    for address in document.loaded:
        if urlsplit(address).netloc:
            yield f"loads {address} from a network"
        elif not resolve(page, address, root).exists():
            yield f"loads {address}, which does not exist"
    for address in document.links:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = resolve(page, address, root)
        if not target.exists():
            yield f"links to {address}, which does not exist"
        elif target in documents and not documents[target].has(unquote(parts.fragment)):
            yield f"links to {address}, but that page has no such anchor"


def resolve(page: Path, address: str, root: Path) -> Path:
    """Find the file that an address on a page names; one that begins with / starts at the site's root."""
    path = unquote(urlsplit(address).path)
    start = root if path.startswith("/") else page.parent
    target = (start / path.lstrip("/")).resolve() if path else page
    return target / "index.html" if target.is_dir() else target
