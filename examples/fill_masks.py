"""Let the demonstration's encoder fill a mask, and judge whether one sentence follows another.

Run `make demo` first, then: python examples/fill_masks.py "The function returns a [MASK] of strings."
"""

import sys

import torch
from transformers import AutoModelForNextSentencePrediction, AutoTokenizer, pipeline

import tercet  # noqa: F401  registers the models with transformers

FOLDER = "runs/demo/encoder/model"
sentence = sys.argv[1] if len(sys.argv) > 1 else "The function returns a [MASK] of strings."

for guess in pipeline("fill-mask", model=FOLDER)(sentence):
    print(f"{guess['score']:6.1%}  {guess['token_str']}")

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForNextSentencePrediction.from_pretrained(FOLDER).eval()
pair = tokenizer(sentence, "If it is empty, an error is raised.", return_tensors="pt")
with torch.no_grad():
    follows, _ = model(**pair).logits[0].softmax(dim=-1).tolist()
print(f"{follows:6.1%}  that the next sentence is: If it is empty, an error is raised.")
