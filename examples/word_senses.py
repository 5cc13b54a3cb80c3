"""Compare the uses of a word that has several senses, layer by layer, in models of any kind.

    python examples/word_senses.py MODEL [MODEL ...]                    folders, or names on the Hub
    python examples/word_senses.py MODEL --sentences FILE --word WORD   lines of "sense<TAB>sentence"
    python examples/word_senses.py MODEL --tagged data/ud_english_ewt/train.jsonl.gz

A word vector is the same wherever its word stands; a state of a model is one of the word in its context
(Peters et al., 2018, section 5.3). For every layer, the table has the mean cosine of two uses in one sense,
of two uses in different senses, and the difference: the further above 0 it is, the better the layer tells the
senses apart. Models that read from left to right see only what precedes the word. Several tokens of a word
are averaged, and of an encoder with a decoder the encoder is read. Static word vectors and character models
have one layer, the vector of the word. Taggers return no states and are refused. Draws a picture.

With --tagged, the uses are those of all words of the file that are often enough tagged with each of two parts
of speech ("an order", "they order"), and the table has the share of uses whose nearest other use is the same
part of speech, with its 95 % interval over words.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer

import tercet  # noqa: F401 (so that AutoModel knows the family)
from tercet.metrics.bootstrap import mean_interval
from tercet.metrics.word_senses import Use as TaggedUse
from tercet.metrics.word_senses import shares_by_word, uses_by_tag
from tercet.reporting.line_charts import LinePanel, draw_lines
from tercet.text.row_files import read_file

WORD = re.compile(r"\w+|[^\w\s]")
"""A word or a mark, as models read them that are given words."""
EMBED: dict[str, Callable[[Any, Any, list[str]], Tensor]] = {
    "tercet_word_vectors": lambda model, _, words: model.embed_words([words])[0],
    "tercet_character": lambda model, tokenizer, words: model.embed_words(tokenizer, [words])[0],
}
"""Type of a model that gives words one vector -> how it is given a sentence."""
Use = tuple[str, str]
"""A sense, and a sentence with the word in it."""

BANK: list[Use] = [
    ("money", "She put all the money she had saved into the bank."),
    ("money", "He asked for a loan, but the bank would not lend him a penny."),
    ("money", "The thieves took the cash and left the bank by the back door."),
    ("money", "To pay the debt, the company went to another bank in the city."),
    ("river", "They sat in the grass beside the water, on the bank of the river."),
    ("river", "The boat drifted down the stream until it touched the bank."),
    ("river", "The river rose in the night and flooded the bank."),
    ("river", "Willows and reeds grew by the lake, along the muddy bank."),
]


def read_uses(file: Path) -> list[Use]:
    """Read lines of a sense and a sentence, with a tab between them.

    Raises:
        ValueError: A line has another form.
    """
    uses = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        sense, tab, sentence = line.partition("\t")
        if not tab:
            raise ValueError(f"{file}, line {number} is {line!r}: write the sense, a tab and the sentence")
        uses.append((sense, sentence))
    return uses


def states_of(model: Any, tokenizer: Any, sentence: str, word: str) -> Tensor:
    """Return the states of a word in a sentence, one for each layer: (layers, C).

    Raises:
        ValueError: The word is not in the sentence, or the model returns no layers of one width.
    """
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", sentence, re.IGNORECASE)
    if found is None:
        raise ValueError(f"{sentence!r} does not have the word {word!r}: choose sentences that do")
    return states_between(model, tokenizer, sentence, *found.span())


def states_between(model: Any, tokenizer: Any, sentence: str, first: int, last: int) -> Tensor:
    """Return the states of the word between two characters of a sentence, one for each layer: (layers, C).

    Raises:
        ValueError: The model returns no layers of states of one width.
    """
    if (embed := EMBED.get(model.config.model_type)) is not None:
        before, behind = (WORD.findall(part) for part in (sentence[:first], sentence[last:]))
        with torch.no_grad():
            return embed(model, tokenizer, [*before, sentence[first:last], *behind])[len(before), None]
    batch = tokenizer(sentence, return_tensors="pt", return_offsets_mapping=True)
    begins, ends = batch.pop("offset_mapping")[0].T
    is_word = (begins < last) & (ends > first)
    with torch.no_grad():
        layers = model(**batch, output_hidden_states=True).get("hidden_states")
    if layers is None or len({layer.shape[-1] for layer in layers}) > 1:
        raise ValueError(
            f"a {model.config.model_type} returns no layers of states of one width: name another model, such "
            "as an encoder or one whose word vectors it reads"
        )
    return torch.stack([layer[0, is_word].mean(0) for layer in layers])


def cosines_by_sense(states: Sequence[Tensor], senses: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Average the cosines of pairs of uses (layers, C) by layer: in one sense, and in different senses.

    Raises:
        ValueError: No two uses have one sense, or all have.
    """
    same: list[Tensor] = []
    different: list[Tensor] = []
    for (first, sense), (second, other) in combinations(zip(states, senses, strict=True), 2):
        (same if sense == other else different).append(F.cosine_similarity(first, second, dim=-1))
    if not same or not different:
        raise ValueError(f"the senses are {sorted(set(senses))}: give two, and two sentences of one of them")
    return torch.stack(same).mean(0), torch.stack(different).mean(0)


def load(name: str) -> tuple[Any, Any]:
    """Load a model, or its encoder if it has a decoder, too; and its tokenizer."""
    model, tokenizer = AutoModel.from_pretrained(name).eval(), AutoTokenizer.from_pretrained(name)
    return (model.get_encoder() if model.config.is_encoder_decoder else model), tokenizer


def compare(name: str, uses: Sequence[Use], word: str) -> tuple[Tensor, Tensor]:
    """Load a model, and compare the uses of a word in it."""
    reader, tokenizer = load(name)
    states = [states_of(reader, tokenizer, sentence, word) for _, sentence in uses]
    return cosines_by_sense(states, [sense for sense, _ in uses])


def shares(name: str, uses: Mapping[str, Sequence[TaggedUse]]) -> Tensor:
    """Load a model, and tell for each word how many uses have one of their sense nearest: (words, layers)."""
    reader, tokenizer = load(name)
    states = {
        word: torch.stack(
            [states_between(reader, tokenizer, each.sentence, each.first, each.last) for each in own]
        )
        for word, own in uses.items()
    }
    return shares_by_word(states, uses)


def tagged_uses(options: argparse.Namespace) -> dict[str, list[TaggedUse]]:
    """Find the words of a tagged file that are used in both senses.

    Raises:
        ValueError: No word is, often enough.
    """
    rows = read_file(options.tagged, (options.words, options.tags))
    pairs = ((row[options.words], row[options.tags]) for row in rows)
    uses = uses_by_tag(pairs, options.senses, options.uses)
    if not uses:
        raise ValueError(
            f"no word of {options.tagged} has {options.uses} uses as each of {' and '.join(options.senses)}: "
            "lower --uses, or name other tags by --senses"
        )
    return uses


def tell_shares(options: argparse.Namespace) -> None:
    """Print and draw how well layers tell the senses of many words apart."""
    uses = tagged_uses(options)
    curves, bands = {}, {}
    print(f"{len(uses)} words, {options.uses} uses of each as {' and as '.join(options.senses)}\n")
    print("| model | layer | nearest use in the same sense, % |\n|---|---:|---:|")
    for name in options.models:
        found = 100 * shares(name, uses).double().numpy()
        bands[name] = [mean_interval(layer) for layer in found.T]
        curves[name] = list(enumerate(found.mean(0).tolist()))
        for (layer, share), (low, high) in zip(curves[name], bands[name], strict=True):
            print(f"| {name} | {layer} | {share:.1f} [{low:.1f}, {high:.1f}] |")
    panel = LinePanel("nearest use in the same sense, %", "layer", curves, bands)
    draw_lines([panel], options.picture)


def draw(results: dict[str, tuple[Tensor, Tensor]], word: str, file: Path) -> None:
    """Draw both cosines by layer, one panel for each model."""
    figure = Figure(figsize=(3.5 * len(results) + 1, 3.5), layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False, sharey=True)[0]
    for panel, (name, (same, different)) in zip(panels, results.items(), strict=True):
        panel.plot(same, marker="o", label="in one sense")
        panel.plot(different, marker="o", label="in different senses")
        panel.set(title=name, xlabel="layer", xticks=range(len(same)))
    panels[0].set_ylabel(f'cosine of two uses of "{word}"')
    panels[0].legend()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)


def main(arguments: Sequence[str]) -> int:
    """Compare, print a table, and draw it."""
    parser = argparse.ArgumentParser(description="Compare the uses of a word that has several senses.")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--sentences", type=Path, help="lines of a sense, a tab and a sentence")
    parser.add_argument("--word", default="bank")
    parser.add_argument("--picture", type=Path, default=Path("word-senses.png"))
    parser.add_argument("--tagged", help="rows of words and their tags")
    parser.add_argument("--words", default="tokens", help="column of the words")
    parser.add_argument("--tags", default="upos", help="column of the tags")
    parser.add_argument("--senses", nargs=2, default=["NOUN", "VERB"], help="tags that are compared")
    parser.add_argument("--uses", type=int, default=8, help="of a word, with each tag")
    options = parser.parse_args(arguments)
    try:
        if options.tagged:
            tell_shares(options)
            print(options.picture)
            return 0
        uses = BANK if options.sentences is None else read_uses(options.sentences)
        results = {name: compare(name, uses, options.word) for name in options.models}
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print("| model | layer | one sense | different senses | difference |\n|---|---:|---:|---:|---:|")
    for name, (same, different) in results.items():
        for layer, (alike, apart) in enumerate(zip(same.tolist(), different.tolist(), strict=True)):
            print(f"| {name} | {layer} | {alike:.3f} | {apart:.3f} | {alike - apart:+.3f} |")
    draw(results, options.word, options.picture)
    print(options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
