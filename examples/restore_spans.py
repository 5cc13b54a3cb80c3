"""Let the demonstration's sequence-to-sequence model write what is missing from a text.

Run `make demo` first, then: python examples/restore_spans.py "The function <extra_id_0> a list of strings."
"""

import sys

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import tercet  # noqa: F401  registers the models with transformers

FOLDER = "runs/demo/seq2seq/model"
text = sys.argv[1] if len(sys.argv) > 1 else "If <extra_id_0>, the function <extra_id_1> a list of strings."

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForSeq2SeqLM.from_pretrained(FOLDER).eval()
answer = model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=40, num_beams=4)
print(tokenizer.decode(answer[0, 1:]))  # the first token is what the decoder begins with
