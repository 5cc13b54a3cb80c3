"""Measure Tercet beside stock models and other libraries.

    python -m lab.benchmarks pretraining                              all cases, ten minutes on two cores
    python -m lab.benchmarks generation --cases 4x256 --rounds 9
    python -m lab.benchmarks pretraining --page docs/performance.md   put the table there
    python -m lab.benchmarks fewshot --render                         the table of earlier figures
    python -m lab.benchmarks fewshot --smoke                          tiny shapes: only to see that it runs

A benchmark is the module of this folder that has its name: cases, what is measured of one, and how it is
shown. `python -m lab.benchmarks NAME --help` shows what is measured, and all options. `measuring.py` explains
how time is taken: let the machine rest meanwhile.
"""

import sys
from importlib import import_module

from .benchmark import Benchmark, main

NAMES = ("pretraining", "generation", "data_pipeline", "finetuning", "distillation", "fewshot", "gpu")


def load(name: str) -> Benchmark:
    return import_module(f".{name}", __package__).BENCHMARK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], NAMES, load, __doc__))
