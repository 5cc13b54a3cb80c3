"""Translate a test set with trained models, greedily and with beams, and score it against the references.

    python lab/benchmarks/score_translations.py runs/translation-multi30k/model test_2016_flickr.jsonl.gz
    python lab/benchmarks/score_translations.py TEACHER STUDENT test_2016_flickr.jsonl.gz --rounds 3

Prints BLEU and chrF with sacrebleu's signatures, which say exactly what was compared, the seconds of all
sentences (median of the rounds, in which models take turns), and some translations of the last model. Where
there are several models, it says how much of the first one's BLEU each keeps, with a 95 % bootstrap interval.
"""

import argparse
import time
from statistics import median

import datasets
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tercet.pretraining.translation_scores import score_translations, translate
from tercet.reports.distill.comparison import keep_of_translations
from tercet.reports.distill.report import shown_interval, shown_share

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("models", nargs="+", help="folders of trained models")
parser.add_argument("pairs", help="JSON lines with a column for either language")
parser.add_argument("--source", default="en", help="column to read")
parser.add_argument("--target", default="de", help="column to compare with")
parser.add_argument("--beams", type=int, nargs="+", default=[1, 5], help="widths of the search")
parser.add_argument("--rounds", type=int, default=1, help="how often each model translates")
arguments = parser.parse_args()

pairs = datasets.load_dataset("json", data_files=arguments.pairs, split="train")
models = {name: AutoModelForSeq2SeqLM.from_pretrained(name).eval() for name in arguments.models}
tokenizers = {name: AutoTokenizer.from_pretrained(name) for name in models}
sources, references = list(pairs[arguments.source]), list(pairs[arguments.target])
first, last = arguments.models[0], arguments.models[-1]
for beams in arguments.beams:
    written, seconds = {}, {name: [] for name in models}
    for _ in range(arguments.rounds):
        for name, model in models.items():
            start = time.perf_counter()
            with torch.inference_mode():
                written[name] = translate(model, tokenizers[name], sources, num_beams=beams)
            seconds[name].append(time.perf_counter() - start)
    for name, translations in written.items():
        scores, taken = score_translations(translations, references, lowercase=True), median(seconds[name])
        print(f"{name}, beams {beams}, {taken:.1f} s:")
        print(f"  BLEU {scores.bleu:.2f} ({scores.bleu_signature}), chrF {scores.chrf:.2f}")
        if name != first:
            kept = keep_of_translations(translations, written[first], references, lowercase=True)
            share, interval = shown_share(kept.share), shown_interval(kept.interval)
            print(f"  {share} of BLEU kept ({interval}), {median(seconds[first]) / taken:.2f}x as fast")
for row in range(0, len(sources), max(len(sources) // 5, 1)):
    print(f"\n  {sources[row]}\n= {written[last][row]}\n~ {references[row]}")
