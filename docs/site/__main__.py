"""`python -m docs.site`: write the pages of the site; `--check` reads the finished site.

`--release` completes the links of the README in a folder of sources.
"""

import shutil
from argparse import ArgumentParser
from pathlib import Path

from .checking import check_site
from .command_pages import command_page
from .language_models import texts_for_language_models
from .module_pages import module_pages
from .notebooks import notebooks
from .pages import ROOT, WrittenPages, boosted
from .recipe_pages import Reference
from .release import complete_links


def write_pages(folder: Path) -> None:
    """Write all pages into a folder, which is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = all_pages()
    texts = {path: boosted(path, text) for path, text in pages.items()}
    for path, text in (texts | notebooks() | texts_for_language_models(pages)).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    for image in (ROOT / "docs").rglob("*.png"):
        place = folder / image.relative_to(ROOT / "docs")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(image, place)
    shutil.copytree(Path(__file__).parent / "assets", folder / "assets")


def all_pages() -> dict[str, str]:
    commands = {"reference/commands.md": command_page()}
    return WrittenPages().write() | Reference().write() | module_pages() | commands


def main() -> None:
    """Write the pages, or check the site."""
    parser = ArgumentParser(prog="python -m docs.site", description=__doc__)
    parser.add_argument(
        "--check", type=Path, metavar="SITE", help="check the links of a finished site instead"
    )
    parser.add_argument(
        "--release", type=Path, metavar="FOLDER", help="complete the links of the README there instead"
    )
    options = parser.parse_args()
    if options.release is not None:
        print(complete_links(options.release) or "the README's links lead to the repository")
    elif options.check is None:
        write_pages(ROOT / "build" / "documentation")
    elif problems := check_site(options.check):
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    main()
