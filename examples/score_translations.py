"""Translate a test set with a trained model, greedily and with beams, and score it against the references.

    python examples/score_translations.py runs/translation-multi30k/model test_2016_flickr.jsonl.gz

Prints BLEU and chrF with sacrebleu's signatures, which say exactly what was compared, and some translations.
"""

import argparse

import datasets
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tercet.pretraining.translation_scores import score_translations, translate

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", help="folder of the trained model")
parser.add_argument("pairs", help="JSON lines with a column for either language")
parser.add_argument("--source", default="en", help="column to read")
parser.add_argument("--target", default="de", help="column to compare with")
parser.add_argument("--beams", type=int, nargs="+", default=[1, 5], help="widths of the search")
arguments = parser.parse_args()

pairs = datasets.load_dataset("json", data_files=arguments.pairs, split="train")
model = AutoModelForSeq2SeqLM.from_pretrained(arguments.model).eval()
tokenizer = AutoTokenizer.from_pretrained(arguments.model)
references = pairs[arguments.target]
for beams in arguments.beams:
    with torch.inference_mode():
        translations = translate(model, tokenizer, pairs[arguments.source], num_beams=beams)
    scores = score_translations(translations, references, lowercase=True)
    print(f"beams {beams}: BLEU {scores.bleu:.2f} ({scores.bleu_signature}), chrF {scores.chrf:.2f}")
for row in range(0, len(pairs), len(pairs) // 5):
    print(f"\n  {pairs[row][arguments.source]}\n= {translations[row]}\n~ {references[row]}")
