"""The documentation as a site: its pages are those of `docs/`, and pages that are generated from the code.

    docs/**/*.md, CONTRIBUTING.md, CHANGELOG.md --copied, links mended--+--> build/documentation
    dataclasses of recipes, argparse parser, modules -----generated-----+          --mkdocs--> site/

`make docs` builds it. Nothing here belongs to the installed package.
"""
