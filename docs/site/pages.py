"""The written pages, as the site has them: links lead to pages of the site, tables of results are filled in.

A link from docs/ to a file of the code leads to a page that shows the file: the site needs no network.
"""

import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from .module_pages import first_line
from .notebooks import offer
from .tables import with_tables

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".cfg": "ini", ".toml": "toml", ".txt": "text"}
"""What a shown file is highlighted as."""
SEARCH_BOOSTS = {
    "reference/api": 1e-3,
    "source": 1e-3,
    "CHANGELOG.md": 1e-3,
    "decisions.md": 1e-3,
    "reference": 0.5,
}
"""Weights in the search by the beginning of a page's path, 1 for guides; words of titles count 1,000-fold."""


@dataclass
class WrittenPages:
    """The pages of `docs/` and some of the root, and the files of the code that they link to."""

    linked: set[PurePosixPath] = field(default_factory=set)
    """Files and folders outside of the pages, relative to the repository, that some page links to."""

    def write(self) -> dict[str, str]:
        """Return all texts by their path in the site."""
        files = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
        places = [PurePosixPath(file.relative_to(ROOT).as_posix()) for file in files]
        pages = {str(self.in_site(place)): self.relocate(place) for place in places}
        return pages | {str(source_page(path)): show_source(path) for path in sorted(self.linked)}

    def relocate(self, place: PurePosixPath) -> str:
        """Read a page, and let its links lead where the targets are in the site."""
        text = with_tables((ROOT / place).read_text(encoding="utf-8"))
        parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.MULTILINE | re.DOTALL)
        for index in range(0, len(parts), 2):  # what is fenced stays
            prose = LINK.sub(lambda link: link[1] + self.target(place, link[2]) + link[3], parts[index])
            parts[index] = re.sub(r"^ +", lambda spaces: 2 * spaces[0], prose, flags=re.MULTILINE)
        return offer(place, "".join(parts))

    def target(self, place: PurePosixPath, link: str) -> str:
        """Translate the target of a link on a page."""
        path, hash_sign, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link) or not path:
            return link
        wanted = PurePosixPath(posixpath.normpath(place.parent / path))
        start = self.in_site(place).parent
        return posixpath.relpath(self.in_site(wanted), start) + hash_sign + anchor

    def in_site(self, path: PurePosixPath) -> PurePosixPath:
        """Return where a file of the repository is in the site; remember it if it is shown as a source."""
        if path.parts[0] == "docs":
            return path.relative_to("docs")
        if path.name == "README.md":
            return PurePosixPath("index.md")
        if path.suffix == ".md":
            return path
        self.linked.add(path)
        return source_page(path)


def source_page(path: PurePosixPath) -> PurePosixPath:
    return PurePosixPath("source") / path.with_name(f"{path.name}.md")


def show_source(path: PurePosixPath) -> str:
    """Write a page that shows a file, or that lists the modules of a folder."""
    file = ROOT / path
    if file.is_dir():
        modules = [
            f"- `{module.relative_to(file)}`: {first_line(module)}"
            for module in sorted(file.rglob("[!_]*.py"))
        ]
        return "\n".join([f"# {path}/", "", *modules, ""])
    if not file.is_file():
        raise ValueError(f"a page links to {path}, which does not exist: correct the link")
    fence, text = "`" * 6, file.read_text(encoding="utf-8")
    return f"# {path}\n\n{fence} {LANGUAGES.get(path.suffix, 'text')}\n{text}{fence}\n"


def boosted(path: str, text: str) -> str:
    """Put the weight of a page in the search before its text."""
    boost = next((boost for place, boost in SEARCH_BOOSTS.items() if path.startswith(place)), None)
    return text if boost is None else f"---\nsearch: {{boost: {boost}}}\n---\n\n{text}"
