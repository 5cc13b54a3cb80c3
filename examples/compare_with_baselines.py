"""Score a finished run beside an untrained model and beside counting, on the run's own held-out text.

    python examples/compare_with_baselines.py runs/decoder-english

Unigram is how frequent each answer is in the training text, trigram interpolated Kneser-Ney on its tokens.
"""

import argparse
from pathlib import Path

import tercet
from tercet.pretraining.comparison import compare

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("run", type=Path, help="the run's output folder")
run = tercet.Result("pretrain", parser.parse_args().run)

scores = compare(tercet.load_recipe(run.folder / "recipe.yaml"), run.model(), run.tokenizer())
names = list(dict.fromkeys(name for row in scores.values() for name in row if not name.endswith("targets")))
print("| | " + " | ".join(names) + " |")
print("|---" * (len(names) + 1) + "|")
for who, row in scores.items():
    print(f"| {who} | " + " | ".join(f"{row[name]:.4g}" if name in row else "" for name in names) + " |")
