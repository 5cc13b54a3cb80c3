"""Compare recipes: train each with several seeds, judge the models, and show tables.

    python -m lab.comparisons bake_off --page docs/results.md
    python -m lab.comparisons bake_off --smoke     a few steps of tiny models: to see that it runs
    python -m lab.comparisons bake_off --render    the table of earlier figures

A comparison is a YAML file of this folder; `comparison.py` says what it has.
"""

import sys

from ..benchmarks.benchmark import main
from .comparison import NAMES, benchmark_of

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], NAMES, benchmark_of, __doc__))
