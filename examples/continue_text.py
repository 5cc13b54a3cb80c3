"""Let the demonstration's decoder continue a text, word by word as it comes.

Run `make demo` first, then: python examples/continue_text.py "Return the number of"
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer

import tercet  # noqa: F401  registers the models with transformers

FOLDER = "runs/demo/decoder/model"
prompt = sys.argv[1] if len(sys.argv) > 1 else "Return the number of"

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForCausalLM.from_pretrained(FOLDER).eval()
# Texts begin with this token in training.
inputs = tokenizer(tokenizer.bos_token + prompt, return_tensors="pt")
torch.manual_seed(0)
model.generate(  # pyright: ignore[reportAttributeAccessIssue]
    **inputs, max_new_tokens=60, do_sample=True, temperature=0.8, top_p=0.9, streamer=TextStreamer(tokenizer)
)
