"""Interpretation: what attention maps say, beside what happens when heads are taken away."""

from dataclasses import replace
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ..inspection.attention_maps import attention_maps
from ..inspection.coreference import Pair, coreference_scores
from ..inspection.head_ablation import ablate_heads, ablation_effects
from ..inspection.inspected_model import untrained
from ..inspection.probing import IGNORED, probe_layers, token_states
from .lessons import accuracy, decoder, encoder, learn
from .study import Curve, Measured

HEADS = "heads of layer 1 (1 to 4) and 2 (5 to 8), the most needed first"


def most_needed_first(values: Tensor, rises: Tensor) -> Curve:
    """Order heads of each layer by the rise of loss without them; no two seeds number them alike."""
    order = rises.view(-1, 4).argsort(dim=1, descending=True)
    return list(enumerate(values.view(-1, 4).gather(1, order).flatten().tolist(), 1))


def repetitions(generator: torch.Generator, length: int = 0, size: int = 32) -> dict[str, Tensor]:
    """Draw texts of 24 tokens, of which the first 4 to 9 are repeated; labels are what can be known."""
    length = length or int(torch.randint(4, 10, (), generator=generator))
    ids = torch.randint(16, (size, length), generator=generator).repeat(1, 6)[:, :24]
    return {"input_ids": ids, "labels": ids.masked_fill(torch.arange(24) <= length, IGNORED)}


def with_neighbour(model: PreTrainedModel) -> None:
    """Let a model read each token's vector with that of the token before, multiplied by a random matrix."""
    width = model.config.hidden_size
    mixing = torch.randn(width, width) / width**0.5
    model.get_input_embeddings().register_forward_hook(
        lambda module, ids, x: x + F.pad(x, (0, 0, 1, 0))[:, :-1] @ mixing
    )


def maps_and_causes(seed: int, broken: str = "", steps: int = 800) -> Measured:
    """Teach decoders of two layers with four heads each to go on with 4 to 9 tokens that are repeated.

    The answer stands behind the earlier occurrence of a token. A head's map is its mean weight there, or on
    the token before, in 64 new texts in which 9 tokens are repeated; the rise is that of the loss without
    the head. A head looks elsewhere if it gives the answer less than half of the weight that the first of all
    heads gives it.
    """
    model = decoder(position_embedding_type="rotary", num_hidden_layers=1 if broken else 2)
    if broken:
        with_neighbour(model)
    learn(model, repetitions, lambda *_: 0.0, steps=steps, seed=seed, points=1)
    batch = repetitions(torch.Generator().manual_seed(10_000 + seed), 9, 64)
    places = torch.arange(10, 17)  # in the second time that a text says the same
    found: dict[str, Tensor] = {}
    for name, own in (("answer", model), ("answer, random weights", untrained(model))):
        maps = torch.stack(attention_maps(own, {"input_ids": batch["input_ids"]})["self"])  # (L, B, H, T, S)
        found[name] = maps[..., places, places - 8].mean((1, -1)).flatten()
        found.setdefault("token before", maps[..., places, places - 1].mean((1, -1)).flatten())
    rises, answer = torch.cat(ablation_effects(model, [batch])), found["answer"]
    looks = (answer >= answer.max() / 2).unflatten(0, (-1, 4))
    with (
        torch.no_grad(),
        ablate_heads(model, {number: row.nonzero().flatten().tolist() for number, row in enumerate(looks)}),
    ):
        without_all = model(**batch).loss
    best, elsewhere = int(answer.argmax()), rises[~looks.flatten()]
    return Measured(
        {
            "weight on the answer, head that looks at it most": answer[best].item(),
            "rise of loss without that head, over the largest rise": (rises[best] / rises.max()).item(),
            "largest rise without a head that looks elsewhere, over the largest rise": (
                elsewhere.max() / rises.max()
            ).item()
            if len(elsewhere)
            else 0.0,
            "largest rise of loss without a head, in nats": rises.max().item(),
            "loss without all heads that look at the answer, in nats": without_all.item(),
            "loss of the whole model, in nats": model(**batch).loss.item(),
            "weight on the answer, random weights": found["answer, random weights"].max().item(),
        },
        {
            ("mean weight of a head", HEADS): {
                f"on the {name}": most_needed_first(each, rises) for name, each in found.items()
            },
            ("rise of loss without a head, in nats", HEADS): {
                "without the head": most_needed_first(rises, rises)
            },
        },
    )


NOUNS = ("fox", "dog", "cat", "hare", "horse", "bear"), ("street", "river", "bridge", "field", "road", "lane")
STATES = ("tired", "hungry", "old", "ill"), ("wide", "deep", "long", "closed")
OTHERS = ("now", "then", "so", "the", "crossed", "saw", "left", "because", "it", "was")
WORDS = [*OTHERS, *NOUNS[0], *NOUNS[1], *STATES[0], *STATES[1]]
IT, LAST = -3, -1
"""Where "it" stands, and what it was; the nouns are at -8 and -5."""


def animals(generator: torch.Generator, size: int = 32, nearer: bool = False) -> dict[str, Tensor]:
    """Draw sentences as "the fox crossed the street because it was tired", labelled with the noun at "it"."""

    def pick(words: Any, *shape: int) -> Tensor:
        return torch.tensor([WORDS.index(word) for word in words])[
            torch.randint(len(words), shape or (size, 1), generator=generator)
        ]

    before = int(torch.randint(1, 6, (), generator=generator))
    order, kind = torch.randint(2, (2, size, 1), generator=generator)
    nouns, states = ([pick(words) for words in kinds] for kinds in (NOUNS, STATES))
    one, other = (torch.where(which == 1, nouns[1], nouns[0]) for which in (order, 1 - order))
    fixed = {word: torch.full((size, 1), WORDS.index(word)) for word in OTHERS}
    parts = [pick(OTHERS[:3], size, before), fixed["the"], one, pick(OTHERS[4:7]), fixed["the"], other]
    state = torch.where(kind == 1, states[1], states[0])
    ids = torch.cat([*parts, fixed["because"], fixed["it"], fixed["was"], state], dim=1)
    labels = torch.full_like(ids, IGNORED)
    labels[:, IT] = torch.where((order == kind) & (not nearer), one, other)[:, 0]
    return {"input_ids": ids, "labels": labels}


def pairs(number: int, generator: torch.Generator) -> list[Pair]:
    """Write pairs of sentences that differ in the last word, as the probe of coreference reads them."""
    found = []
    for ids in animals(generator, number)["input_ids"].tolist():
        words = [WORDS[idx] for idx in ids]
        nouns = words[-8], words[-5]
        endings = [
            f"it was {STATES[noun in NOUNS[1]][place]}"
            for noun, place in zip(nouns, torch.randint(4, (2,), generator=generator).tolist(), strict=True)
        ]
        found.append(Pair(" ".join(words[:IT]), *nouns, *endings))
    return found


def it_and_animal(seed: int, broken: str = "", steps: int = 400, number: int = 40) -> Measured:
    """Teach encoders of two layers to name at "it" the noun that it stands for, of twelve.

    In "the fox crossed the street because it was tired" the last word decides; either kind of noun comes
    first, behind one to five words. The house's probe of coreference reads 40 new pairs of sentences; rises
    are those of the loss without a head. A linear probe of "it" names the noun's kind, and its control
    labels that are drawn for each last word.
    """
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({word: idx for idx, word in enumerate(WORDS)}))
    )
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()

    def draw(generator: torch.Generator) -> dict[str, Tensor]:
        return animals(generator, nearer=bool(broken))

    model = encoder(vocab_size=len(WORDS), position_embedding_type="rotary")
    learn(model, draw, accuracy, steps=steps, seed=seed, points=1)
    generator = torch.Generator().manual_seed(20_000 + seed)
    texts = pairs(number, generator)
    scores, at_random = (coreference_scores(own, tokenizer, texts) for own in (model, untrained(model)))
    batch = animals(generator, 128)
    rises = torch.cat(ablation_effects(model, [draw(generator) for _ in range(4)]))
    found = scores.accuracy.flatten()
    kinds = torch.full_like(batch["labels"], IGNORED)
    kinds[:, IT] = (batch["input_ids"][:, LAST] >= WORDS.index("wide")).long()
    states = replace(token_states(model, [(batch, kinds)]), types=batch["input_ids"][:, LAST])
    probes = probe_layers(states, seed=seed)
    return Measured(
        {
            "accuracy of the model": accuracy(model, draw, seed),
            "sentences in which the best head, chosen on others, looks at the noun more": scores.held_out,
            "the same of random weights": at_random.held_out,
            "what the best of eight guessing heads exceeds once in twenty times": scores.best_by_chance,
            "rise of loss without the head that is right most often, over the largest": (
                rises[found.argmax()] / rises.max()
            ).item(),
        }
        | {
            f'probe of the noun\'s kind at "it", layer {probe.layer}{of}': share
            for probe in probes
            for of, share in (("", probe.accuracy), (", control", probe.control))
        },
        {
            ("share of sentences in which a head is right", HEADS): {
                "trained": most_needed_first(found, rises),
                "random weights": most_needed_first(at_random.accuracy, rises),
            },
            ("rise of loss without a head, in nats", HEADS): {
                "without the head": most_needed_first(rises, rises)
            },
        },
    )
