"""README.md as a package index shows it: there, a link to a file leads to the repository, at the release."""

import re
from configparser import ConfigParser
from pathlib import Path

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def complete_links(folder: Path) -> str | None:
    """Let the links of the README in a folder of sources lead to the repository that its metadata name.

    Returns:
        What is missing, if the metadata name no repository; the README then stays as it is.
    """
    parser = ConfigParser()
    parser.read(folder / "setup.cfg", encoding="utf-8")
    metadata = parser["metadata"]
    lines = metadata.get("project_urls", "").strip().splitlines()
    repository = dict(line.split(" = ") for line in lines).get("Repository")
    if repository is None:
        return "setup.cfg has no project_urls with a Repository: the README's links stay relative"
    readme = folder / "README.md"
    text = with_links(readme.read_text(encoding="utf-8"), repository, metadata["version"])
    readme.write_text(text, encoding="utf-8")
    return None


def with_links(text: str, repository: str, version: str) -> str:
    """Complete the relative links and pictures of a text, as GitHub addresses files of a tag.

    >>> with_links("![a](docs/a.png), [b](#b), [c](docs/c.md#d)", "https://example.org/x", "1.0")
    '![a](https://example.org/x/raw/v1.0/docs/a.png), [b](#b), [c](https://example.org/x/blob/v1.0/docs/c.md#d)'
    """
    return LINK.sub(
        lambda link: (
            f"{link[1]}[{link[2]}]({repository}/{'raw' if link[1] else 'blob'}/v{version}/{link[3]})"
        ),
        text,
    )
