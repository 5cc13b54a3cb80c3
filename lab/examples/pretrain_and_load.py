"""Pretrain a decoder on your own text, and load it with transformers.

    python lab/examples/pretrain_and_load.py corpus.train=books.txt corpus.validation=held-out.txt
    python lab/examples/pretrain_and_load.py    the documentation that is installed on this machine

Blank lines separate the documents of a text file. Every value of the recipe `decoder-demo` can be changed
likewise; `tercet recipes decoder-demo` prints it.
"""

import sys
from collections.abc import Sequence

from transformers import pipeline

import tercet  # registers the models with transformers

BEGINNING = "Return the number of"


def main(overrides: Sequence[str]) -> None:
    """Pretrain, and let the model go on from a beginning."""
    settings = ["training.steps=200", "output=runs/pretrain-and-load", *overrides]
    run = tercet.pretrain("decoder-demo", *settings, overwrite=True)
    print("perplexity", run.scores["clm/perplexity"])
    write = pipeline("text-generation", str(run.model_path))
    print(write(BEGINNING, max_new_tokens=30, do_sample=False)[0]["generated_text"])
    print("report:", run.report)


if __name__ == "__main__":
    main(sys.argv[1:])
