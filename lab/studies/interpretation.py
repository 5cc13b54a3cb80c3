"""Interpretation: what attention maps say, beside what happens when heads are taken away."""

from typing import Any

import numpy as np
import torch
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from tercet.modeling.heads.losses import IGNORE
from tercet.tools.inspect.attention_maps import attention_maps
from tercet.tools.inspect.head_ablation import ablate_heads, ablation_effects
from tercet.tools.inspect.inspected_model import untrained
from tercet.tools.inspect.logit_lens import record_states

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
    return {"input_ids": ids, "labels": ids.masked_fill(torch.arange(24) <= length, IGNORE)}


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
NOUN_PLACES, IT, LAST = [-8, -5], -3, -1
"""Where the nouns stand, "it", and what it was."""


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
    labels = torch.full_like(ids, IGNORE)
    labels[:, IT] = torch.where((order == kind) & (not nearer), one, other)[:, 0]
    return {"input_ids": ids, "labels": labels}


def pairs(number: int, generator: torch.Generator) -> Tensor:
    """Draw pairs of sentences that differ in the last word, which suits the first noun, then the second.

    A rule that always takes the nearer noun, or the first one, is right in one of the two (as in Levesque,
    Davis and Morgenstern, 2012). Returns ids (P, 2, T).
    """
    ids = animals(generator, number)["input_ids"]
    both = ids[:, None].repeat(1, 2, 1)
    for pair in both:
        drawn = torch.randint(4, (2,), generator=generator).tolist()
        for sentence, place, number in zip(pair, NOUN_PLACES, drawn, strict=True):
            sentence[LAST] = WORDS.index(STATES[WORDS[pair[0, place]] in NOUNS[1]][number])
    return both


def finds_noun(model: PreTrainedModel, sentences: Tensor) -> Tensor:
    """Return 1 where a head gives the right noun more weight at "it", 0.5 for equal ones, (L, H, P, 2)."""
    maps = torch.stack(
        attention_maps(model, {"input_ids": sentences.flatten(0, 1)})["self"]
    )  # (L, B, H, T, T)
    of_nouns = maps[..., IT, NOUN_PLACES].unflatten(1, (-1, 2)).permute(0, 3, 1, 2, 4)  # (L, H, P, 2, 2)
    right, wrong = of_nouns.diagonal(dim1=-2, dim2=-1), of_nouns.flip(-1).diagonal(dim1=-2, dim2=-1)
    return 0.5 + 0.5 * (right - wrong).sign()


def chosen_on_others(is_right: Tensor) -> float:
    """Return the accuracy on half of the pairs of the head that is best on the other half, of both halves."""
    heads = is_right.flatten(0, 1)
    one, other = heads[:, ::2].mean(dim=(1, 2)), heads[:, 1::2].mean(dim=(1, 2))
    return float(other[one.argmax()] + one[other.argmax()]) / 2


def best_by_chance(is_right: Tensor) -> float:
    """Return the accuracy that the best of as many heads that guess exceeds once in twenty times."""
    num_heads, num_sentences = is_right.flatten(0, 1).flatten(1).shape
    return float(binom.ppf(0.95 ** (1 / num_heads), num_sentences, 0.5)) / num_sentences


def probe(states: Tensor, kinds: Tensor, words: Tensor, seed: int) -> dict[str, float]:
    """Let linear probes of each layer's states (L + 1, n, C) name kinds, and random labels of words.

    That a probe succeeds may only mean that it has learned: the control labels are in no state, but can be
    learned by heart (Hewitt and Liang, 2019). Scores are those of the 30 % of states that are held out.
    """
    order = torch.randperm(len(kinds), generator=torch.Generator().manual_seed(seed)).numpy()
    test, train = np.split(order, [round(0.3 * len(kinds))])
    known, places = np.unique(words.numpy(), return_inverse=True)
    control = np.random.default_rng(seed).choice(kinds.numpy(), size=len(known))[places]
    found = {}
    for layer, read in enumerate(states.numpy()):
        for name, labels in (("", kinds.numpy()), (", control", control)):
            classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
            score = classifier.fit(read[train], labels[train]).score(read[test], labels[test])
            found[f'probe of the noun\'s kind at "it", layer {layer}{name}'] = float(score)
    return found


def it_and_animal(seed: int, broken: str = "", steps: int = 400, number: int = 40) -> Measured:
    """Teach encoders of two layers to name at "it" the noun that it stands for, of twelve.

    In "the fox crossed the street because it was tired" the last word decides; either kind of noun comes
    first, behind one to five words. 40 new pairs of sentences tell which heads look at the noun; rises are
    those of the loss without a head. A linear probe of "it" names the noun's kind, and its control
    labels that are drawn for each last word.
    """

    def draw(generator: torch.Generator) -> dict[str, Tensor]:
        return animals(generator, nearer=bool(broken))

    model = encoder(vocab_size=len(WORDS), position_embedding_type="rotary")
    learn(model, draw, accuracy, steps=steps, seed=seed, points=1)
    generator = torch.Generator().manual_seed(20_000 + seed)
    texts = pairs(number, generator)
    scores, at_random = (finds_noun(own, texts) for own in (model, untrained(model)))
    batch = animals(generator, 128)
    rises = torch.cat(ablation_effects(model, [draw(generator) for _ in range(4)]))
    found, of_chance = (each.mean(dim=(2, 3)).flatten() for each in (scores, at_random))
    last = batch["input_ids"][:, LAST]
    states = torch.stack(record_states(model, batch))[:, :, IT]
    return Measured(
        {
            "accuracy of the model": accuracy(model, draw, seed),
            "sentences in which the best head, chosen on others, looks at the noun more": chosen_on_others(
                scores
            ),
            "the same of random weights": chosen_on_others(at_random),
            "what the best of eight guessing heads exceeds once in twenty times": best_by_chance(scores),
            "rise of loss without the head that is right most often, over the largest": (
                rises[found.argmax()] / rises.max()
            ).item(),
        }
        | probe(states, (last >= WORDS.index("wide")).long(), last, seed),
        {
            ("share of sentences in which a head is right", HEADS): {
                "trained": most_needed_first(found, rises),
                "random weights": most_needed_first(of_chance, rises),
            },
            ("rise of loss without a head, in nats", HEADS): {
                "without the head": most_needed_first(rises, rises)
            },
        },
    )
