"""From a recipe's `objective` to the objective and the examples that it learns from."""

from copy import copy
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch

from tercet.data.corpus import TokenizedCorpus
from tercet.data.steps.batches import StepDataset
from tercet.data.steps.examples import Examples, ExampleSource
from tercet.data.steps.objective import IGNORE, Objective
from tercet.data.steps.packing import sequence_lengths, slice_sequences
from tercet.data.tokenizers.tokenizer import frame_ids
from tercet.modeling import TercetEncoderConfig
from tercet.pretraining.objectives.masked_pairs import PAIR_LABELS
from tercet.pretraining.objectives.recipes import OBJECTIVES, ObjectiveContext

from ...corpora import make_corpus
from .conftest import read

KINDS = [*OBJECTIVES]
KINDS.remove("bidirectional_language_modeling")  # it has tests of its own
LENGTH = 32


def draw_corpus(num_documents: int, seed: int) -> TokenizedCorpus:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 9, 3 * num_documents)
    tokens = rng.integers(5, 55, sizes.sum()).astype(np.uint16)
    return make_corpus(sizes.reshape(-1, 3).tolist(), tokens, rng.random(sizes.sum()) < 0.7)


def make_source(kind: str, tokenizer, isolate_documents: bool = True) -> ExampleSource:
    corpus = (draw_corpus(40, 0), draw_corpus(40, 1)) if kind == "translation" else draw_corpus(40, 0)
    options = {"sequence_length": LENGTH, "isolate_documents": isolate_documents}
    return read(kind).examples(corpus, ObjectiveContext(tokenizer, **options))


ALONE_OR_JOINED = [
    *((kind, True) for kind in KINDS),
    *((kind, False) for kind in KINDS if kind != "fill_in_the_middle"),
]
"""Kinds, and whether documents are isolated: what is rearranged is one document."""

RANDOM_LENGTHS = ("denoising", "sentence_denoising", "mixture_of_denoisers", "fill_in_the_middle")
"""Objectives whose sequences have random lengths."""


@pytest.mark.parametrize(("kind", "isolate_documents"), ALONE_OR_JOINED)
def test_every_kind_makes_batches_of_its_examples(kind, isolate_documents, tokenizer):
    source = make_source(kind, tokenizer, isolate_documents)
    objective = read(kind).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    assert isinstance(source, ExampleSource)
    examples = source.epoch(0)
    assert isinstance(examples, Examples)
    batches = objective.collate_parts([examples[i] for i in range(len(examples))], 0)
    assert max(max(batch["max_length_q"], batch["max_length_k"]) for batch in batches) <= LENGTH
    targets = {name: count for batch in batches for name, count in objective.targets(batch).items()}
    assert targets.keys() == objective.weights.keys()
    assert all(count > 0 for count in targets.values())
    lengths = np.concatenate([sequence_lengths(batch) for batch in batches])
    if kind in RANDOM_LENGTHS:
        assert abs(lengths.sum() / examples.lengths.sum() - 1) < 0.05
    else:
        assert lengths.tolist() == examples.lengths.tolist()


@pytest.mark.parametrize("kind", ["causal_language_modeling", "masked_language_modeling"])
@pytest.mark.parametrize("isolate_documents", [True, False])
def test_documents_are_separated_by_what_closes_a_text(kind, isolate_documents, tokenizer):
    """Of a decoder each has one, a target, so that it learns to end a text; of an encoder, a sequence has."""
    corpus = draw_corpus(5, 0)
    length = 5 * len(corpus.tokens)  # so that no document is cut
    context = ObjectiveContext(tokenizer, length, isolate_documents=isolate_documents)
    source = read(kind).examples(corpus, context)
    assert isinstance(source, Examples)
    opening, closing = frame_ids(tokenizer)
    assert closing
    documents = [[*corpus.document(number), *closing] for number in range(corpus.num_documents)]
    if not isolate_documents:
        at_the_end = closing if kind == "masked_language_modeling" else []
        documents = [[*chain.from_iterable(documents), *at_the_end]]
    assert [list(source[index]["input_ids"]) for index in range(len(source))] == [
        [*opening, *text] for text in documents
    ]


class OneByOne:
    """The same examples without the way to make many at once."""

    def __init__(self, source: ExampleSource, number: int = 0):
        self.source, self.examples = source, source.epoch(number)
        self.lengths = self.examples.lengths
        self.components = getattr(self.examples, "components", None)

    def epoch(self, number):
        return OneByOne(self.source, number)

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, index):
        return self.examples[index]


RECIPES = [
    *({"kind": kind} for kind in KINDS),
    {"kind": "masked_language_modeling", "whole_word": True},
    {"kind": "masked_language_modeling", "whole_word": True, "masking": "static"},
    {"kind": "masked_language_modeling", "span_masking": {}},
    {"kind": "masked_language_modeling", "span_masking": {"max_span_length": 5}, "masking": "static"},
]


@pytest.mark.parametrize("isolate_documents", [True, False])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: "-".join(map(str, recipe.values())))
def test_a_step_of_packed_examples_equals_one_of_single_examples(recipe, isolate_documents, tokenizer):
    isolate_documents |= recipe["kind"] == "fill_in_the_middle"
    source = make_source(recipe["kind"], tokenizer, isolate_documents)
    objective = read(**recipe).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    fast, slow = (make_steps(examples, objective) for examples in (source, OneByOne(source)))
    for place in [(0, number) for number in range(len(fast.plan(0)[1]))] + [(1, 0)]:
        expected, found = slow[place], fast[place]
        assert (found.targets, found.tokens) == (expected.targets, expected.tokens)
        for own, other in zip(found.parts, expected.parts, strict=True):
            assert (own.edges, own.component) == (other.edges, other.component)
            assert own.batch.keys() == other.batch.keys()
            for name, value in other.batch.items():
                torch.testing.assert_close(own.batch[name], value, rtol=0, atol=0)


MIXTURE = {
    "kind": "mixture",
    "objectives": [
        {"share": 0.6, "objective": {"kind": "masked_language_modeling"}},
        {"share": 0.4, "objective": {"kind": "masked_language_modeling_with_next_sentence"}},
    ],
}
NOISY = {"kind": "translation", "input_noise": 0.3, "scheduled_sampling": {}}


class Watched:
    """Examples that remember which of them were made."""

    def __init__(self, source: ExampleSource):
        self.source, self.made = source, []

    def epoch(self, number):
        examples = self.source.epoch(number)
        pack = examples.pack

        def watched(indices):
            self.made.extend(indices.tolist())
            return pack(indices)

        examples = copy(examples)
        examples.__dict__["pack"] = watched
        return examples


def rows_of(step) -> list[tuple]:
    """List the sequences of a step's micro-batches: whatever a batch has of each."""
    rows = []
    for batch in step.micro_batches(torch.device("cpu")):
        for number in range(len(batch["cu_seq_lens_q"]) - 1):
            one = slice_sequences(batch, number, number + 1)
            tensors = {name: value for name, value in one.items() if isinstance(value, torch.Tensor)}
            rows.append(
                (batch.get("component"), *((name, str(tensors[name].tolist())) for name in sorted(tensors)))
            )
    return sorted(rows, key=str)


@pytest.mark.parametrize(
    "recipe", [*RECIPES, MIXTURE, NOISY], ids=lambda recipe: "-".join(map(str, recipe))[:40] + recipe["kind"]
)
def test_shares_of_processes_are_the_step_of_one(recipe, tokenizer):
    """Bit for bit, also in what is random; and a process makes no example but its own."""
    context = ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0)
    built = read(**recipe)
    corpus = (draw_corpus(40, 0), draw_corpus(40, 1)) if built.reads_pairs else draw_corpus(40, 0)
    source, objective = built.examples(corpus, context), built.build(context)
    assert objective.reads_whole_step == (recipe is NOISY)

    def step_of(processes: int, index: int, **changes: Any):
        watched = Watched(source)
        options: dict[str, Any] = {
            "tokens_per_step": 400,
            "tokens_per_micro_batch": 100,
            "seed": 3,
            "num_steps": 10,
        }
        steps = StepDataset(
            watched, objective, **options | changes, num_processes=processes, process_index=index
        )
        return steps[1, 1, 5], watched.made, steps.plan(1)[1][1].tolist()

    whole, made, planned = step_of(1, 0)
    assert sorted(made) == sorted(planned)
    expected = rows_of(whole)
    assert rows_of(step_of(1, 0, tokens_per_micro_batch=10_000)[0]) == expected
    for processes in (2, 4):
        shares = [step_of(processes, index) for index in range(processes)]
        assert sorted(chain.from_iterable(rows_of(share) for share, _, _ in shares), key=str) == expected
        for name in ("examples", "tokens", "fingerprint"):
            assert sum(getattr(share, name) for share, _, _ in shares) == getattr(whole, name)
        for term, count in whole.targets.items():
            assert sum(share.targets[term] for share, _, _ in shares) == count
        all_made = sorted(chain.from_iterable(made for _, made, _ in shares))
        assert all_made == sorted(planned * (processes if objective.reads_whole_step else 1))


def make_steps(source: ExampleSource, objective: Objective, **changes: int) -> StepDataset:
    return StepDataset(source, objective, tokens_per_step=200, tokens_per_micro_batch=100, seed=3, **changes)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "sentence" not in kind])
def test_an_epoch_holds_every_token_of_the_corpus_once(kind, tokenizer):
    """Over the micro-batches of two processes; what was hidden is in the labels."""
    source = make_source(kind, tokenizer)
    objective = read(kind).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    counts = np.zeros(len(tokenizer), dtype=int)
    for process_index in (0, 1):
        steps = make_steps(source, objective, num_processes=2, process_index=process_index)
        for number in range(len(steps.plan(0)[1])):
            for batch in steps[0, number].micro_batches(torch.device("cpu")):
                counts += np.bincount(np.concatenate(written(batch, kind)), minlength=len(counts))
    corpora = [draw_corpus(40, 0), draw_corpus(40, 1)] if kind == "translation" else [draw_corpus(40, 0)]
    expected = np.bincount(np.concatenate([corpus.tokens for corpus in corpora]), minlength=len(counts))
    assert counts[FIRST_WORD:LAST_WORD].tolist() == expected[FIRST_WORD:LAST_WORD].tolist()


FIRST_WORD, LAST_WORD = 5, 55


def written(batch: dict, kind: str) -> list[np.ndarray]:
    """The original tokens of a batch."""
    ids, labels = batch["input_ids"][0].numpy(), batch["labels"][0].numpy()
    if OBJECTIVES[kind].model_class.config_class is TercetEncoderConfig:
        return [np.where(labels == IGNORE, ids, labels)]
    if kind == "hybrid_language_modeling":
        kind = ("causal_language_modeling", "masked_next_token_prediction")[batch["component"]]
    if kind == "masked_next_token_prediction":
        before = np.concatenate([[IGNORE], labels[:-1]])
        return [np.where(before == IGNORE, ids, before)]
    if kind in ("causal_language_modeling", "fill_in_the_middle", "denoising"):
        return [labels]
    if kind == "character_language_modeling":
        return [labels[labels != IGNORE]]
    return [ids, labels]


@pytest.mark.parametrize("kind", KINDS)
def test_evaluated_losses_are_those_trained_on(kind, tokenizer):
    """By the logits of the targets, or by the model's own loss, in evaluation or in training."""
    torch.manual_seed(0)
    recipe = read(kind, **({"label_smoothing": 0.0} if kind == "translation" else {}))
    config_class: Any = recipe.model_class.config_class
    config = config_class(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, dropout=0.0,
        num_attention_heads=2, max_position_embeddings=64, decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    model = recipe.build_model(config).eval()
    objective = recipe.build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    examples = make_source(kind, tokenizer).epoch(0)
    chosen = [examples[i] for i in np.linspace(0, len(examples) - 1, 12, dtype=int)]
    batches = objective.collate_parts(chosen, 0)
    evaluated = set()
    for batch in batches:
        model.eval()
        with torch.no_grad():
            losses, scores = objective.losses(model, batch), objective.scores(model, batch)
            trained = objective.losses(model.train(), batch)
            no_target = objective.losses(model, batch | {"labels": torch.full_like(batch["labels"], IGNORE)})
        assert losses.keys() == scores.keys()
        evaluated |= scores.keys()
        for term, targets in objective.targets(batch).items():
            torch.testing.assert_close(scores[term]["loss"], losses[term])
            torch.testing.assert_close(scores[term]["loss"], trained[term])
            assert 0 <= scores[term]["accuracy"] <= targets
            chance = np.log(2 if term in {*PAIR_LABELS, "rtd"} else config.vocab_size)
            assert (scores[term]["loss"] / targets).item() == pytest.approx(chance, abs=1)
        assert no_target[next(iter(losses))] == 0
    assert evaluated == objective.weights.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_every_term_has_words_for_reports(kind, tokenizer):
    recipe = read(kind)
    objective = recipe.build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    assert objective.weights.keys() == recipe.TERMS.keys()


UNDRAWN = {"causal_language_modeling", "character_language_modeling", "translation"}
"""Objectives that read texts as they are."""


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "span_corruption"])
def test_a_batch_is_a_function_of_the_seed(kind, tokenizer):
    """Also of spans, but that short texts have one, at their end."""
    source = make_source(kind, tokenizer).epoch(0)
    examples = [source[index] for index in range(len(source))]
    objective = read(kind).build(ObjectiveContext(tokenizer, LENGTH, decoder_start_id=0))
    first, again, other = (str(objective.collate_parts(examples, seed)) for seed in (0, 0, 1))
    assert first == again
    assert (first == other) == (kind in UNDRAWN)


def test_static_masks_come_from_the_seed(tokenizer):
    recipe = read("masked_language_modeling", masking="static", whole_word=True)
    source = make_source("masked_language_modeling", tokenizer).epoch(0)
    examples = [source[index] for index in range(9)]
    labels = [
        recipe.build(ObjectiveContext(tokenizer, LENGTH, seed=seed)).collate(examples, draw)["labels"]
        for seed, draw in ((0, 0), (0, 1), (1, 0))
    ]
    assert torch.equal(labels[0], labels[1])
    assert not torch.equal(labels[0], labels[2])
