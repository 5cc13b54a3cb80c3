"""The chunked loss against its definition, in value and gradients.

One rule for labels: in every head, in training as in evaluation.

ELMo's heads learn from micro-batches what they learn from whole batches, the penalty included.
"""

import math
from inspect import signature

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode
from transformers import Trainer, TrainingArguments

from tercet import TercetElmoForSequenceClassification, TercetElmoForTokenClassification
from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling import (
    TercetEncoderForMaskedLM,
    TercetEncoderForSequenceClassification,
    TercetRecurrentSeq2SeqConfig,
    TercetRecurrentSeq2SeqForConditionalGeneration,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.modeling.heads import losses as cross_entropy
from tercet.modeling.heads.losses import (
    IGNORE,
    LossChunk,
    behind_start,
    checked_shares,
    cross_entropy_sum,
    linear_cross_entropy,
    lm_head_loss,
    logits_loss,
)
from tercet.modeling.sequences import find_sequences

from ..small_elmo import TEXTS, small_config

N, C, V = 23, 8, 31


@pytest.fixture
def case():
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(N, C), torch.randn(V, C), torch.randn(V)
    return [x.double().requires_grad_() for x in (hidden, weight, bias)], torch.randint(0, V, (N,))


@pytest.mark.parametrize("z_loss", [0.0, 0.3])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("rows_per_chunk", [1, 5, N, 100])
def test_chunks_equal_the_definition(case, z_loss, smoothing, has_bias, rows_per_chunk, monkeypatch):
    monkeypatch.setitem(cross_entropy.CHUNK_BYTES, "cpu", rows_per_chunk * V * 8)
    (hidden, weight, bias), labels = case
    bias = bias if has_bias else None
    inputs = [x for x in (hidden, weight, bias) if x is not None]
    fast = linear_cross_entropy(hidden, weight, bias, labels, smoothing, z_loss)
    slow = cross_entropy_sum(F.linear(hidden, weight, bias), labels, smoothing, z_loss)
    assert_close(fast, slow)
    assert_close(torch.autograd.grad(3 * fast, inputs), torch.autograd.grad(3 * slow, inputs))


@pytest.mark.parametrize(
    ("mask", "positions", "bounds"),
    [
        (None, None, None),
        (None, None, torch.tensor([0, 3, 5])),
        (None, torch.tensor([[0, 1, 2, 0, 1]]), None),
        (torch.tensor([[0, 0, 0, 1, 1]]), None, None),
    ],
)
def test_where_sequences_begin_is_found_in_one_graph_without_waiting(mask, positions, bounds):
    config = TercetSeq2SeqConfig(vocab_size=V, decoder_start_token_id=7, pad_token_id=0)

    def read(labels, *given):
        return behind_start(labels, config, find_sequences(labels, *given).is_first)

    given, labels = (mask, positions, bounds), torch.tensor([[1, 2, 3, 4, 5]])
    expected = read(labels, *given)
    assert expected[0, [0, 4]].tolist() == [7, 4]
    assert expected[0, 3] == (3 if given == (None, None, None) else 7)
    assert torch.equal(torch.compile(read, backend="eager", fullgraph=True)(labels, *given), expected)
    on_meta = [None if each is None else each.to("meta") for each in (labels, *given)]
    assert read(*on_meta).shape == labels.shape  # a value that is asked for is an error there


SMALL = {"vocab_size": V, "hidden_size": 16, "pad_token_id": 0}
TRANSLATORS = {
    TercetSeq2SeqForConditionalGeneration: TercetSeq2SeqConfig(
        **SMALL, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2
    ),
    TercetRecurrentSeq2SeqForConditionalGeneration: TercetRecurrentSeq2SeqConfig(
        **SMALL, embedding_size=16, dropout=0.0
    ),
}


@pytest.mark.parametrize("architecture", TRANSLATORS)
@pytest.mark.parametrize("training", [False, True])
def test_labels_that_are_padded_on_the_left_are_read_as_those_on_the_right(architecture, training):
    torch.manual_seed(0)
    model = architecture(TRANSLATORS[architecture]).train(training)
    source, short, whole = torch.tensor([[1, 2, 3]] * 2), [4, 5], [6, 7, 8, 9]
    left, right = (torch.tensor([row, whole]) for row in ([IGNORE] * 2 + short, short + [IGNORE] * 2))
    assert_close(model(source, labels=left).loss, model(source, labels=right).loss)
    nothing = torch.tensor([[IGNORE] * 4, whole])
    assert_close(model(source, labels=nothing).loss, model(source[:1], labels=nothing[1:]).loss)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("settings", [(0.0, 0.0), (0.1, 0.3)])
def test_a_compiled_chunk_equals_the_definition(case, settings, backend, monkeypatch):
    """With gaps, in one graph for chunks of one size."""
    monkeypatch.setitem(cross_entropy.CHUNK_BYTES, "cpu", 8 * V * 8)
    inputs, labels = case[0], torch.cat([case[1], torch.tensor([IGNORE])])
    inputs[0] = torch.cat([inputs[0].detach(), torch.randn(1, C).double()]).requires_grad_()
    labels[::5] = IGNORE
    chunk, frames = LossChunk(), CompileCounterWithBackend(backend)
    chunk.forward = torch.compile(chunk.forward, fullgraph=True, dynamic=False, backend=frames)
    fast = linear_cross_entropy(*inputs, labels, *settings, has_gaps=True, chunk=chunk)
    slow = cross_entropy_sum(F.linear(*inputs), labels, *settings)
    assert_close(fast, slow)
    assert_close(torch.autograd.grad(3 * fast, inputs), torch.autograd.grad(3 * slow, inputs))
    assert frames.frame_count == 1


@pytest.mark.parametrize("backend", [None, "aot_eager"])
@pytest.mark.parametrize("settings", [(0.0, 0.0), (0.1, 0.3)])
def test_rows_that_fill_the_vocabulary_up_are_no_classes(case, settings, backend):
    """Nor have they a gradient, with and without gaps and compilation."""
    inputs, labels = [x.detach() for x in case[0]], case[1].clone()
    labels[::5] = IGNORE
    forward = LossChunk().forward
    options = {"has_gaps": True, "num_classes": V}
    expected = forward(*inputs, labels, *settings, **options)
    if backend is not None:
        forward = torch.compile(forward, fullgraph=True, dynamic=False, backend=backend)
    states, *filled = (cross_entropy.whole_tiles(x) if index else x for index, x in enumerate(inputs))
    loss, d_states, *gradients = forward(states, *filled, labels, *settings, **options)
    assert_close((loss, d_states), expected[:2])
    of_weight, of_bias = gradients[0].T, gradients[1]
    for found, wanted in ((of_weight, expected[2].T), (of_bias, expected[3])):
        assert len(found) % cross_entropy.WHOLE_TILE == 0
        assert_close(found[:V], wanted)
        assert not found[V:].any()


def test_no_graph_learns_a_label_beyond_the_vocabulary():
    """A kernel that looks it up would stop, and one that compares labels would find none."""
    labels = torch.tensor([0, V, torch.iinfo(torch.int32).max])
    loss, gradient = cross_entropy._fused_gradient(torch.randn(3, V), labels, 0.0, 0.0, V)
    assert loss.isnan().tolist() == gradient.isnan().all(-1).tolist() == [False, True, True]


@pytest.mark.parametrize("largest", [10.0, 30.0, 100.0])
def test_fused_gradients_of_words_that_are_known_are_not_rounded_away(largest):
    """However large the logits are: what is left to learn is what others have."""
    rows, labels = torch.arange(400), torch.randint(V, (400,))
    logits = torch.randn(400, V)
    logits[rows, labels] = largest + torch.rand(400)
    logits[rows, (labels + 1) % V] = largest - torch.empty(400).uniform_(10, 14)
    loss, gradient = cross_entropy._fused_gradient(logits, labels, 0.0, 0.0, V)
    log_probabilities = logits.double().log_softmax(-1)[rows, labels]
    assert_close(loss.sum().double(), -log_probabilities.sum(), rtol=0.01, atol=0)
    assert_close(gradient[rows, labels].norm().double(), log_probabilities.expm1().norm(), rtol=0.01, atol=0)
    assert gradient[rows, labels].all()


@pytest.mark.parametrize("settings", [(0.0, 0.0), (0.1, 0.3)])
def test_fused_gradients_are_the_definitions_also_beside_gaps_without_end(settings):
    """The logits of a row without a label may be anything."""
    logits, labels = torch.randn(4, V).double(), torch.tensor([0, IGNORE, 5, IGNORE])
    logits[1, 2] = math.inf
    own = labels != IGNORE
    loss, gradient = cross_entropy._fused_gradient(logits, labels, *settings, V)
    wanted = cross_entropy._softmax_gradient(logits[own], labels[own], *settings)
    assert_close((loss[own], gradient[own]), wanted, rtol=1e-14, atol=1e-14)
    assert not loss[~own].any()
    assert not gradient[~own].any()


@pytest.mark.parametrize(
    ("num_rows", "sizes"), [(16_384, [2048] * 8), (16_383, [2730, 2731, 2730, 2731, 2730, 2731])]
)
def test_chunks_on_a_gpu_are_of_one_size_if_up_to_twice_as_many_can_be(num_rows, sizes, monkeypatch):
    monkeypatch.setattr(cross_entropy, "rows_per_chunk", lambda *_: 3000)
    chunks = cross_entropy._chunks(num_rows, 1, torch.device("cuda"))
    assert [rows.stop - rows.start for rows in chunks] == sizes


@pytest.mark.parametrize(
    ("vocab_size", "rows"), [(8192, 16_384), (32_768, 4096), (50_257, 4096), (131_072, 2048)]
)
def test_chunks_on_a_gpu_may_be_twice_as_large_up_to_4096_rows(vocab_size, rows):
    assert cross_entropy.rows_per_chunk(2 * vocab_size, "cuda") == rows


@pytest.mark.parametrize("distance", [60, 90, 1000])
def test_a_word_held_for_impossible_costs_its_distance(distance):
    """However far below the others, and however little of its probability a float32 keeps."""
    weight = torch.cat([torch.zeros(V - 1, 1), torch.full((1, 1), -float(distance))]).requires_grad_()
    hidden, labels = torch.ones(3, 1), torch.tensor([V - 1, 0, V - 1])
    fast = linear_cross_entropy(hidden, weight, None, labels)
    slow = cross_entropy_sum(F.linear(hidden.double(), weight.double()), labels)
    assert_close(fast.double(), slow, rtol=1e-6, atol=0)
    assert_close(*(torch.autograd.grad(x, weight)[0] for x in (fast, slow)))


@pytest.mark.parametrize("z_loss", [0.0, 0.01])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_takes_nothing_from_doubt_or_certainty(dtype, smoothing, z_loss):
    """From labels of probability 1e-40 to such that only a millionth is missing: in loss and gradient."""
    torch.manual_seed(0)
    margins = torch.arange(-90, 24, 1.5)
    logits = torch.randn(len(margins), 4000)
    labels = torch.randint(4000, (len(margins),))
    logits[range(len(margins)), labels] = margins
    logits = logits.to(dtype)
    exact = logits.double().requires_grad_()
    losses = F.cross_entropy(exact, labels, reduction="none", label_smoothing=smoothing)
    losses = losses + z_loss * exact.exp().sum(-1).log().square()
    (gradient,) = torch.autograd.grad(losses.sum(), exact)
    for row, label in enumerate(labels):
        one = slice(row, row + 1)
        loss, found = cross_entropy._softmax_gradient(logits[one].clone(), labels[one], smoothing, z_loss)
        assert_close(loss[0].double(), losses[row], rtol=1e-2, atol=1e-6)
        assert_close(found[0, label].double(), gradient[row, label], rtol=2e-2, atol=1e-6)
        assert (found[0].double() - gradient[row]).norm() < 2e-2 * gradient[row].norm() + 1e-6


@pytest.mark.parametrize("z_loss", [0.0, 0.1])
def test_autocast_computes_in_half_precision_and_returns_full(case, z_loss):
    (hidden, weight, bias), labels = case
    hidden, weight, bias = (x.detach().float().requires_grad_() for x in (hidden, weight, bias))
    exact = linear_cross_entropy(hidden, weight, bias, labels, z_loss=z_loss)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = linear_cross_entropy(hidden, weight, bias, labels, z_loss=z_loss)
    assert rounded.dtype == torch.float32
    assert rounded != exact
    assert_close(rounded, exact, rtol=2e-2, atol=0)
    for fast, slow in zip(
        *(torch.autograd.grad(x, (hidden, weight, bias)) for x in (rounded, exact)), strict=True
    ):
        assert fast.dtype == torch.float32
        assert (fast - slow).norm() / slow.norm() < 2e-2


def test_a_counter_of_operations_reads_the_loss():
    """As a run does in its first step; the counter asks what each module reads for its gradient."""
    hidden, weight = torch.randn(5, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        linear_cross_entropy(hidden, weight, None, torch.arange(5)).backward()
    assert counter.get_total_flops() == 3 * 2 * 5 * 8 * 11


def test_a_z_loss_by_hand():
    """Logits ln 1, ln 2 and ln 5 have Z = 8, so that the loss of the second is ln 8 - ln 2 + 0.5 (ln 8)^2."""
    logits = torch.tensor([[1.0, 2.0, 5.0]], dtype=torch.float64).log().requires_grad_()
    loss = cross_entropy_sum(logits, torch.tensor([1]), z_loss=0.5)
    log_z = math.log(8)
    assert loss.item() == pytest.approx(math.log(4) + 0.5 * log_z**2)
    (gradient,) = torch.autograd.grad(loss, logits)
    probabilities = torch.tensor([[1, 2, 5]], dtype=torch.float64) / 8
    assert_close(gradient, (1 + log_z) * probabilities - torch.tensor([[0, 1, 0]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_takes_nothing_from_a_small_z_loss(dtype):
    """1e-4 of PaLM raises all gradients by 2e-3, which is half a digit of a probability in 16 bits."""
    torch.manual_seed(0)
    logits, labels = torch.randn(8, 4000).to(dtype), torch.arange(8)
    found = cross_entropy._softmax_gradient(logits.clone(), labels, 0.0, 1e-4)[1].double()
    probabilities, log_z = logits.double().softmax(-1), logits.double().logsumexp(-1)
    for gradients in (found, probabilities):
        gradients[range(8), labels] = 0
    raised = found.sum(-1) / probabilities.sum(-1) - 1
    assert_close(raised, 2e-4 * log_z, rtol=0.05, atol=0)


def test_no_z_loss_is_exactly_none(case):
    (hidden, weight, bias), labels = case
    logits = F.linear(hidden, weight, bias)
    usual, none = (
        F.cross_entropy(logits, labels, reduction="sum"),
        cross_entropy_sum(logits, labels, z_loss=0.0),
    )
    assert torch.equal(usual, none)
    assert usual.grad_fn is not None
    assert type(usual.grad_fn) is type(none.grad_fn)


def test_only_targets_count(case):
    (hidden, weight, bias), labels = case
    head = nn.Linear(C, V).double()
    head.weight.data, head.bias.data = weight.data, bias.data
    labels[::3] = IGNORE
    chosen = labels != IGNORE
    mean = lm_head_loss(hidden, labels, nn.Identity(), head)
    assert_close(mean, F.cross_entropy(head(hidden[chosen]), labels[chosen]))
    assert_close(lm_head_loss(hidden, labels, nn.Identity(), head, reduction="sum"), mean * chosen.sum())
    assert_close(
        lm_head_loss(hidden, labels, nn.Identity(), head, num_items_in_batch=7), mean * chosen.sum() / 7
    )
    assert_close(logits_loss(head(hidden), labels), mean)
    log_z = head(hidden[chosen]).logsumexp(-1)
    assert_close(
        lm_head_loss(hidden, labels, nn.Identity(), head, z_loss=0.2), mean + 0.2 * log_z.square().mean()
    )
    assert_close(logits_loss(head(hidden), labels, z_loss=0.2), mean + 0.2 * log_z.square().mean())


def test_a_head_that_is_not_plain_is_called(case):
    (hidden, _, _), labels = case

    class Doubled(nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    head = Doubled(C, V).double()
    expected = F.cross_entropy(head(hidden), labels)
    assert_close(lm_head_loss(hidden, labels, nn.Identity(), head), expected)
    expected += 0.2 * head(hidden).logsumexp(-1).square().mean()
    assert_close(lm_head_loss(hidden, labels, nn.Identity(), head, z_loss=0.2), expected)


def test_a_batch_without_targets_costs_nothing(case):
    (hidden, _, _), labels = case
    nothing = torch.full_like(labels, IGNORE)
    loss = lm_head_loss(hidden, nothing, nn.Identity(), nn.Linear(C, V).double(), z_loss=0.2)
    loss.backward()
    assert loss == 0
    assert hidden.grad.abs().max() == 0


@pytest.mark.parametrize("z_loss", [0.0, 0.05])
def test_training_with_labels_equals_the_full_head(member, z_loss, builder, batch):
    model = builder(member, "bert")
    ids, mask = batch.padded()
    labels = ids.masked_fill((mask == 0) | (ids % 2 == 0), IGNORE)
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": labels, "z_loss": z_loss}
    results = []
    for training in (True, False):
        outputs = model.train(training)(**inputs)
        outputs.loss.backward()
        results.append((outputs.loss, [p.grad.clone() for p in model.parameters()]))
        assert (outputs.logits is None) == training
        model.zero_grad()
    assert_close(results[0][0], results[1][0], rtol=1e-5, atol=1e-6)
    assert_close(results[0][1], results[1][1], rtol=1e-3, atol=1e-5)


LABELS = ("labels", "next_sentence_label", "start_positions")


def learning(task_builder, architecture, examples):
    inputs = examples(architecture)
    names = [name for name in LABELS if name in inputs]
    if not names:
        pytest.skip("learns from no labels")
    return task_builder(architecture, num_labels=3), inputs, names


@pytest.mark.parametrize("label", [-1, 61])
@pytest.mark.parametrize("is_training", [True, False])
def test_a_label_that_is_no_answer_is_refused(architecture, task_builder, examples, is_training, label):
    model, inputs, names = learning(task_builder, architecture, examples)
    for name in names:
        if name == "start_positions" and label == 61:
            continue  # a position behind the end asks nothing
        wrong = inputs[name].clone()
        wrong.view(-1)[1] = label
        with pytest.raises(ValueError, match=f"hold {label}: give -100"):
            model.train(is_training)(**inputs | {name: wrong})


@pytest.mark.parametrize("is_training", [True, False])
def test_labels_of_four_bytes_teach_as_those_of_eight(architecture, task_builder, examples, is_training):
    model, inputs, names = learning(task_builder, architecture, examples)
    model.train(is_training)
    short = {name: value.int() for name, value in inputs.items() if "label" in name or "positions" in name}
    assert names
    assert short
    assert_close(model(**inputs | short).loss, model(**inputs).loss, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
def test_labels_of_any_integer_type_name_one_of_several(dtype, task_builder, examples):
    inputs = examples(TercetEncoderForSequenceClassification)
    losses = []
    for labels in (inputs["labels"], inputs["labels"].to(dtype)):
        model = task_builder(TercetEncoderForSequenceClassification, num_labels=3)
        losses.append(model(**inputs | {"labels": labels}).loss)
        assert model.config.problem_type == "single_label_classification"
    assert_close(*losses, rtol=0, atol=0)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("is_training", [True, False])
def test_pads_are_never_targets_whatever_their_labels_say(
    architecture, task_builder, examples, is_training, side
):
    model, inputs, _ = learning(task_builder, architecture, examples)
    if inputs.get("labels") is None or inputs["labels"].shape != inputs["input_ids"].shape:
        pytest.skip("has no labels of tokens")
    model.train(is_training)
    mask = torch.ones_like(inputs["input_ids"])
    mask[1, :2] = 0
    inputs["attention_mask"] = mask if side == "left" else mask.flip(-1)
    if "decoder_input_ids" in signature(model.forward).parameters:
        inputs["decoder_input_ids"] = inputs["input_ids"].flip(0)  # otherwise labels are read, too
        inputs["decoder_attention_mask"] = inputs["attention_mask"]
    pads = inputs["attention_mask"] == 0
    losses = [
        model(**inputs | {"labels": inputs["labels"].masked_fill(pads, label)}).loss
        for label in (IGNORE, 0, 1)
    ]
    assert_close(losses[0], losses[1], rtol=0, atol=0)
    assert_close(losses[0], losses[2], rtol=0, atol=0)


@pytest.mark.parametrize("is_training", [True, False])
def test_labels_that_are_no_integers_are_refused(task_builder, examples, is_training):
    model, inputs, _ = learning(task_builder, TercetEncoderForMaskedLM, examples)
    with pytest.raises(ValueError, match=r"labels are torch\.float32"):
        model.train(is_training)(**inputs | {"labels": inputs["labels"].float()})


def test_multi_label_classification_refuses_what_is_no_share(task_builder, examples):
    inputs = examples(TercetEncoderForSequenceClassification)
    model = task_builder(TercetEncoderForSequenceClassification, num_labels=3)
    labels = torch.zeros(4, 3)
    labels[1, 1] = IGNORE
    with pytest.raises(ValueError, match=r"labels hold -100\.0"):
        model(**inputs | {"labels": labels})
    assert checked_shares(torch.tensor([0.0, 0.5, 1.0])).tolist() == [0, 0.5, 1]


@pytest.mark.parametrize("is_training", [False, True])
def test_labels_of_another_size_are_refused(architecture, is_training, task_builder, examples):
    model, inputs = task_builder(architecture, num_labels=3).train(is_training), examples(architecture)
    if "labels" in inputs:
        inputs["labels"] = F.pad(inputs["labels"], (0, 1))
        inputs |= {"decoder_input_ids": inputs["input_ids"]} if "Conditional" in architecture.__name__ else {}
        with pytest.raises(ValueError, match="labels have the size "):
            model(**inputs)


def test_sets_of_labels_as_integers_are_refused_with_a_remedy(task_builder, examples):
    """Their loss is that of single labels, as in transformers, which says the size of a batch is wrong."""
    model = task_builder(TercetEncoderForSequenceClassification, num_labels=3)
    inputs = examples(TercetEncoderForSequenceClassification) | {"labels": torch.eye(4, 3).long()}
    with pytest.raises(ValueError, match=r"size \(4, 3\): give \(4, 1\), or floats \(4, 3\) for sets"):
        model(**inputs)


@pytest.mark.parametrize("is_training", [False, True])
def test_pads_behind_a_cache_are_no_targets(is_training, builder, batch):
    model, (ids, mask) = builder("decoder").train(is_training), batch.padded()
    losses = []
    for labels in (ids, ids.masked_fill(mask == 0, IGNORE)):
        inputs = {"input_ids": ids[:, 2:], "attention_mask": mask, "labels": labels[:, 2:]}
        inputs["past_key_values"] = model(ids[:, :2], mask[:, :2], use_cache=True).past_key_values
        losses.append(model(**inputs).loss)
    assert_close(losses[0], losses[1], rtol=0, atol=0)


LENGTHS = [3, 9, 5, 1, 7, 2, 8, 4]


NUM_LABELS, PAD = 4, 0


def elmo(task):
    model = task(small_config(vocab_size=540, num_labels=NUM_LABELS, mix_penalty=0.5))
    model.learn_spelling(train_tokenizer(TEXTS, "words", 540))
    torch.nn.init.normal_(model.mix.weights)
    return model


def rows(task) -> list[dict]:
    """Make rows of different lengths, with labels of the head's kind."""
    is_of_words = task is TercetElmoForTokenClassification
    return [
        {
            "input_ids": torch.randint(40, 120, (length,)),
            "labels": torch.randint(NUM_LABELS, (length,) if is_of_words else ()),
        }
        for length in LENGTHS
    ]


def collate(batch: list[dict]) -> dict[str, torch.Tensor]:
    """Pad rows on the right."""
    pad = torch.nn.utils.rnn.pad_sequence
    ids, labels = ([row[name] for row in batch] for name in ("input_ids", "labels"))
    are_of_words = labels[0].dim() == 1
    return {
        "input_ids": pad(ids, batch_first=True, padding_value=PAD),
        "attention_mask": pad([torch.ones_like(each) for each in ids], batch_first=True),
        "labels": pad(labels, True, -100) if are_of_words else torch.stack(labels),
    }


@pytest.mark.parametrize("task", [TercetElmoForSequenceClassification, TercetElmoForTokenClassification])
def test_trainer_accumulates_to_the_step_of_the_whole_batch(task, tmp_path):
    ends, starts = [], []
    for accumulation in (1, 4):
        torch.manual_seed(0)
        model, data = elmo(task), rows(task)
        starts.append({name: each.detach().clone() for name, each in model.named_parameters()})
        arguments = TrainingArguments(
            output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=len(data) // accumulation,
            gradient_accumulation_steps=accumulation, optim="sgd", learning_rate=1.0, max_grad_norm=0.0,
            lr_scheduler_type="constant", save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        Trainer(model, arguments, collate, train_dataset=data).train()
        ends.append({name: each.detach() for name, each in model.named_parameters()})
    assert any((ends[0][name] != starts[0][name]).any() for name in starts[0])
    assert_close(*ends, rtol=1e-4, atol=1e-6)
