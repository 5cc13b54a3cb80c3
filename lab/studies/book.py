"""Write the book of studies: measure claims, keep their numbers, and write the pages of docs/studies/.

    python -m lab.studies.book                    all of them, with each of their switches (make studies)
    python -m lab.studies.book scaled-scores      only these, the others stay as they were measured
    python -m lab.studies.book --render           measures nothing, and writes the pages again

Results are in lab/results/claims/, one file for each study, and the pages are made of them by
`pages.py`. The register of all claims, docs/studies/register.md, is written by hand.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tercet.reports.text import as_markdown

from ..publishing import RESULTS, keep, read
from .pages import chapter
from .running import run_study
from .study import SUBJECTS, Study, all_studies, find_study
from .verdicts import judged

KEPT = RESULTS / "claims"
PAGES = Path(__file__).parents[2] / "docs" / "studies"

HEAD = """\
# Studies of claims

What the literature says about Transformers, run to a verdict with Tercet's own parts. A claim says between
which bounds each value lies. An interval over seeds confirms a value if it lies there, refutes it if it lies
outside, and leaves it undecided otherwise; a claim is confirmed if all of its values are, and refuted if one
is. Brackets hold 95 % intervals. Bounds and predictions were written before the first run
([lab/studies/](../../lab/studies)).

```sh
tercet study                                   # lists the studies
tercet study scaled-scores                     # runs one: method, values, picture, a page
tercet study scaled-scores --predict           # asks for your prediction first
tercet study scaled-scores --break no-scale    # takes away what the claim is about
```

The [register](register.md) has all claims, with the study, the test or the page that settles each.
"""


def results() -> dict[str, dict[str, Any]]:
    """Read what has been measured, by study; a study whose prediction is new has no result yet."""
    return {name: read(file) for name in all_studies() if (file := KEPT / f"{name}.json").exists()}


def measure(study: Study) -> dict[str, Any]:
    """Run a study, and again with each of its switches, of which the verdict is kept."""
    say = partial(print, file=sys.stderr, flush=True)
    result = run_study(study, say=say)
    verdicts = {switch: judged(study, run_study(study, switch, say=say)) for switch in study.switches}
    return result | {"verdicts_when_broken": verdicts}


def pages(found: Mapping[str, Mapping[str, Any]], folder: Path | None = None) -> dict[str, str]:
    """Return the pages made of results, by their names; pictures go into a folder, if one is given."""
    chapters = {f"{subject}.md": as_markdown(chapter(subject, found, folder)) for subject in SUBJECTS}
    return {"index.md": index(found)} | chapters


def index(found: Mapping[str, Mapping[str, Any]]) -> str:
    """List the studies with their verdicts."""
    rows = []
    for study in all_studies().values():
        verdict = judged(study, found[study.name]) if study.name in found else "not measured yet"
        rows.append(f"| [{study.name}]({study.subject}.md) | {study.predicted} | {verdict} |")
    return "\n".join([HEAD, "| study | predicted | verdict |", "|---|---|---|", *rows, ""])


def main(arguments: Sequence[str]) -> None:
    """Measure, and write the pages."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="studies; all if none is named")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    options = parser.parse_args(arguments)
    for name in [] if options.render else options.names or all_studies():
        keep(KEPT / f"{name}.json", measure(find_study(name)))
    for name, text in pages(results(), PAGES).items():
        (PAGES / name).write_text(text, encoding="utf-8")
    print(PAGES)


if __name__ == "__main__":
    main(sys.argv[1:])
