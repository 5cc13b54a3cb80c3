"""Heads of tasks: every layout gives one result, losses are transformers' own and divided as asked.

Heads of the sequence-to-sequence model read the source twice, or what the decoder is given instead.

Vectors of texts: pooled states of length 1 in every layout, as sentence-transformers would make them.
"""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close
from transformers.loss.loss_utils import ForQuestionAnsweringLoss, ForSequenceClassificationLoss

from tercet.modeling import (
    TercetDecoderForMultipleChoice,
    TercetDecoderForSentenceEmbedding,
    TercetDecoderForSequenceClassification,
    TercetDecoderModel,
    TercetEncoderForMultipleChoice,
    TercetEncoderForQuestionAnswering,
    TercetEncoderForReplacedTokenDetection,
    TercetEncoderForSentenceEmbedding,
    TercetEncoderForSequenceClassification,
    TercetEncoderModel,
    TercetSeq2SeqConfig,
    TercetSeq2SeqForMultipleChoice,
    TercetSeq2SeqForQuestionAnswering,
    TercetSeq2SeqForSequenceClassification,
    TercetSeq2SeqForTokenClassification,
)
from tercet.modeling.heads.classification import pool_mean
from tercet.modeling.sequences import find_sequences

from ..tolerances import CLOSE
from .one_lesson import gradients

SEQUENCE_TASKS = (
    TercetEncoderForSequenceClassification,
    TercetDecoderForSequenceClassification,
    TercetSeq2SeqForSequenceClassification,
)


CHOICE_TASKS = {
    TercetEncoderForMultipleChoice: TercetEncoderForSequenceClassification,
    TercetDecoderForMultipleChoice: TercetDecoderForSequenceClassification,
    TercetSeq2SeqForMultipleChoice: TercetSeq2SeqForSequenceClassification,
}
"""Models that choose, and what scores a single text in the same way."""


def answers(task, batch, side: str) -> dict[str, Tensor]:
    """Labels of a padded batch, by the kind of task: three labels, or three choices."""
    lengths = torch.tensor([len(ids) for ids in batch.sequences])
    if "Token" in task.__name__:
        ids, mask = batch.padded(side)
        return {"labels": (ids % (2 if "ReplacedToken" in task.__name__ else 3)).masked_fill(mask == 0, -100)}
    if "QuestionAnswering" in task.__name__:
        first = lengths.max() - lengths if side == "left" else 0
        return {"start_positions": first + lengths // 2, "end_positions": first + lengths - 1}
    return {"labels": lengths % 3}


def padded(task, batch, side: str = "right") -> dict[str, Tensor]:
    """Inputs and labels of a padded batch; a choice is made between a sequence and two that are like it."""
    ids, mask = batch.padded(side)
    if "MultipleChoice" in task.__name__:
        ids, mask = torch.stack((ids, ids // 2 + 3, ids // 3 + 3), 1), mask[:, None].expand(-1, 3, -1)
    return {"input_ids": ids, "attention_mask": mask} | answers(task, batch, side)


def packed(task, batch) -> dict[str, Tensor]:
    """Inputs and labels of a packed batch, in which positions are counted from each first token."""
    inputs = batch.packed()
    found = answers(task, batch, "right")
    if "Token" in task.__name__:
        found = {"labels": inputs["input_ids"] % (2 if "ReplacedToken" in task.__name__ else 3)}
    return inputs | found


def part(inputs: dict[str, Tensor], rows: slice) -> dict[str, Tensor]:
    """Take some of the rows."""
    return {name: value[rows] for name, value in inputs.items()}


def logits_of(outputs) -> Tensor:
    """Logits (..., L), whatever their name."""
    return (
        outputs.logits if "logits" in outputs else torch.stack((outputs.start_logits, outputs.end_logits), -1)
    )


def assert_one_result(model, task, batch) -> None:
    """Compare loss and gradients of each sequence alone with those of every layout, in both modes."""
    layouts = [padded(task, batch, "right"), padded(task, batch, "left")]
    if "MultipleChoice" not in task.__name__:
        layouts.append(packed(task, batch))
    alone = [padded(task, type(batch)([ids])) for ids in batch.sequences]
    expected_loss = torch.stack([model(**each, reduction="sum").loss for each in alone]).sum()
    expected_loss.backward()
    expected = gradients(model)
    for training in (False, True):
        model.train(training)
        for inputs in layouts:
            loss = model(**inputs, reduction="sum").loss
            loss.backward()
            assert_close(loss, expected_loss, **CLOSE)
            assert_close(gradients(model), expected, rtol=1e-3, atol=5e-4)


def test_every_layout_gives_one_loss_and_one_gradient(task, task_builder, batch):
    assert_one_result(task_builder(task, "bert", num_labels=3), task, batch)


@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
@pytest.mark.parametrize("task", SEQUENCE_TASKS)
def test_every_way_of_pooling_respects_the_layout(task, pooling, task_builder, batch):
    fields = {"classifier_act": "gelu", "classifier_norm": True, "classifier_pooling": pooling}
    assert_one_result(task_builder(task, num_labels=3, **fields), task, batch)


@pytest.mark.parametrize("task", SEQUENCE_TASKS[:2])
def test_the_last_layer_computes_no_states_that_the_head_does_not_read(task, task_builder, batch):
    model, computed = task_builder(task), []
    model.model.layers[-1].feed_forward.register_forward_hook(
        lambda *call: computed.append(call[2].shape[:2])
    )
    (ids, mask), single, whole = (
        batch.padded(),
        (1, len(batch.sequences)),
        [1, sum(map(len, batch.sequences))],
    )
    model(**batch.packed())
    model(input_ids=ids, attention_mask=mask)
    model.train()(input_ids=ids, attention_mask=mask)
    assert computed == [single, ids.shape, single]
    states = model(**batch.packed(), output_hidden_states=True).hidden_states
    assert [*states[-1].shape[:2]] == whole


def test_logits_have_a_row_for_each_sequence_or_token(task, task_builder, batch):
    model = task_builder(task, num_labels=3)
    logits = logits_of(model(**padded(task, batch)))
    if "MultipleChoice" in task.__name__:
        assert logits.shape == (5, 3)
        return
    in_stream = logits_of(model(**packed(task, batch)))
    if "SequenceClassification" in task.__name__:
        assert logits.shape == in_stream.shape == (5, 3)
        assert_close(in_stream, logits, **CLOSE)
        return
    is_real = batch.padded()[1] == 1
    assert in_stream.shape[:2] == (1, 23)
    assert_close(in_stream[0], logits[is_real], **CLOSE)


def test_restarting_positions_alone_give_a_row_for_each_sequence(task_builder, batch):
    for task in SEQUENCE_TASKS:
        model, inputs = task_builder(task, num_labels=3), batch.packed()
        expected = model(**inputs).logits
        del inputs["cu_seq_lens_q"]
        assert_close(model(**inputs).logits, expected)


def test_a_decoder_finds_the_last_token_by_mask_id_or_place(task_builder, batch):
    model = task_builder(TercetDecoderForSequenceClassification)
    ids, mask = batch.padded(pad=0)
    expected = model(input_ids=ids, attention_mask=mask).logits
    assert_close(model(input_ids=ids).logits, expected, **CLOSE)
    model.config.pad_token_id = None
    alone = model(input_ids=ids[2:3]).logits
    assert_close(alone, expected[2:3], **CLOSE)
    vectors = model.get_input_embeddings()(ids)
    assert_close(model(inputs_embeds=vectors, attention_mask=mask).logits, expected, **CLOSE)


def test_a_decoder_classifies_what_goes_on_behind_a_cache(task_builder, batch):
    model = task_builder(TercetDecoderForSequenceClassification)
    ids, mask = (each[:4] for each in batch.padded())  # all of at least three tokens
    expected = model(input_ids=ids, attention_mask=mask)
    assert expected.past_key_values is None
    begun = model(input_ids=ids[:, :2], attention_mask=mask[:, :2], use_cache=True)
    rest = {"input_ids": ids[:, 2:], "attention_mask": mask, "past_key_values": begun.past_key_values}
    assert_close(model(**rest).logits, expected.logits, **CLOSE)


@pytest.mark.parametrize(
    ("num_labels", "labels"),
    [
        (1, torch.tensor([0.5, -2.0, 1.0, 0.0, 3.0])),
        (1, torch.tensor([[0.5], [-2.0], [1.0], [0.0], [3.0]])),
        (3, torch.tensor([0, 2, 1, 1, 0])),
        (3, torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [0, 0, 1]])),
    ],
)
@pytest.mark.parametrize("task", SEQUENCE_TASKS)
def test_the_problem_is_found_and_solved_as_in_transformers(task, num_labels, labels, task_builder, batch):
    model = task_builder(task, num_labels=num_labels)
    ids, mask = batch.padded()
    outputs = model(input_ids=ids, attention_mask=mask, labels=labels)
    found, model.config.problem_type = model.config.problem_type, None
    assert_close(outputs.loss, ForSequenceClassificationLoss(labels, outputs.logits, model.config))
    assert found == model.config.problem_type


def test_a_named_problem_is_not_guessed(task_builder, batch):
    fields = {"num_labels": 3, "problem_type": "regression"}
    model = task_builder(TercetEncoderForSequenceClassification, **fields)
    labels = torch.arange(15).view(5, 3).float()
    outputs = model(input_ids=batch.padded()[0], labels=labels)
    assert_close(outputs.loss, ((outputs.logits - labels) ** 2).mean())


def test_parts_of_a_batch_have_the_loss_of_the_whole(task, task_builder, batch):
    model, inputs = task_builder(task, num_labels=3), padded(task, batch)
    num_items = (inputs["labels"] != -100).sum() if "labels" in inputs else 5
    parts = [model(**part(inputs, rows), num_items_in_batch=num_items) for rows in (slice(0, 2), slice(2, 5))]
    assert_close(sum(each.loss for each in parts), model(**inputs).loss)


def test_parts_have_the_loss_of_the_whole_whatever_the_problem(task_builder, batch):
    model = task_builder(TercetEncoderForSequenceClassification, num_labels=3)
    inputs = padded(TercetEncoderForSequenceClassification, batch) | {"labels": torch.rand(5, 3)}
    for problem in ("regression", "multi_label_classification"):
        model.config.problem_type = problem
        parts = [model(**part(inputs, rows), num_items_in_batch=15) for rows in (slice(0, 2), slice(2, 5))]
        assert_close(sum(each.loss for each in parts), model(**inputs).loss)


def test_spans_beyond_the_text_ask_nothing(task_builder, batch):
    task = TercetEncoderForQuestionAnswering
    model, inputs = task_builder(task), padded(task, batch)
    whole = part(inputs, slice(2, 3))
    outputs = model(**whole)
    spans = {name: whole[name] for name in ("start_positions", "end_positions")}
    expected = ForQuestionAnsweringLoss(outputs.start_logits, outputs.end_logits, **spans)
    assert_close(outputs.loss, expected)
    for name in spans:
        inputs[name] = torch.tensor([7, 3, int(whole[name]), 9, 50])  # at pads, and behind the last column
    assert_close(model(**inputs).loss, expected, **CLOSE)
    inputs["start_positions"] = torch.full((5,), 50)
    assert model(**inputs | {"end_positions": inputs["start_positions"]}).loss == 0


def test_texts_without_any_token_are_harmless(task, task_builder, batch):
    model, inputs = task_builder(task, num_labels=3).train(), padded(task, batch)
    inputs["attention_mask"] = inputs["attention_mask"].clone()
    inputs["attention_mask"][4] = 0
    model(**inputs).loss.backward()
    assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())


def test_only_real_tokens_are_judged(task_builder, batch):
    task = TercetEncoderForReplacedTokenDetection
    model, inputs = task_builder(task), padded(task, batch)
    outputs, mask = model(**inputs), inputs["attention_mask"] == 1
    is_replaced = (inputs["labels"] == 1)[mask].float()
    probability = outputs.logits[mask].sigmoid()
    likelihood = is_replaced * probability.log() + (1 - is_replaced) * (1 - probability).log()
    assert 0 < is_replaced.mean() < 1
    assert_close(outputs.loss, -likelihood.mean(), **CLOSE)
    of_pads = inputs["labels"].masked_fill(~mask, 1)  # neither the mask nor -100 alone lets pads in
    assert_close(model(**inputs | {"labels": of_pads}).loss, outputs.loss)


@pytest.mark.parametrize("task", CHOICE_TASKS)
def test_a_choice_is_scored_by_itself(task, task_builder, batch):
    inputs = padded(task, batch)
    model, scorer = task_builder(task), task_builder(CHOICE_TASKS[task], num_labels=1)
    scorer.load_state_dict(model.state_dict())
    rows = {name: inputs[name].flatten(0, 1) for name in ("input_ids", "attention_mask")}
    assert_close(model(**inputs).logits, scorer(**rows).logits.view(5, 3))


@pytest.mark.parametrize("task", CHOICE_TASKS)
@pytest.mark.parametrize("training", [False, True])
def test_packed_choices_are_scored_as_padded_ones(task, training, task_builder, batch):
    model, inputs = task_builder(task, "bert").train(training), padded(task, batch)
    ids, mask = (inputs[name].flatten(0, 1) for name in ("input_ids", "attention_mask"))
    stream = type(batch)([row[is_real] for row, is_real in zip(ids, mask.bool(), strict=True)]).packed()
    expected = model(**inputs | {"labels": None}).logits.view(1, -1)
    expected.square().sum().backward()
    expected_gradients = gradients(model)
    for told in ({"cu_seq_lens_q", "position_ids"}, {"cu_seq_lens_q"}, {"position_ids"}):
        logits = model(**{name: stream[name] for name in {"input_ids", *told}}).logits
        logits.square().sum().backward()
        assert_close(logits, expected, **CLOSE)
        assert_close(gradients(model), expected_gradients, rtol=1e-3, atol=5e-4)


def test_choices_may_be_vectors(task_builder, batch):
    model, inputs = (
        task_builder(TercetDecoderForMultipleChoice),
        padded(TercetDecoderForMultipleChoice, batch),
    )
    vectors = model.get_input_embeddings()(inputs["input_ids"])
    assert vectors.dim() == 4
    logits = model(inputs_embeds=vectors, attention_mask=inputs["attention_mask"]).logits
    assert_close(logits, model(**inputs).logits, **CLOSE)


CONFIG = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 37, "num_attention_heads": 4}


HEADS = [
    TercetSeq2SeqForSequenceClassification,
    TercetSeq2SeqForTokenClassification,
    TercetSeq2SeqForMultipleChoice,
    TercetSeq2SeqForQuestionAnswering,
]


@torch.no_grad()
@pytest.mark.parametrize("head", HEADS)
def test_what_the_decoder_reads_may_be_given(head):
    torch.manual_seed(0)
    model = head(TercetSeq2SeqConfig(**CONFIG, num_hidden_layers=2)).eval()
    ids, mask = torch.randint(3, 61, (2, 7)), torch.ones(2, 7).long()
    mask[1, 5:] = 0
    if head is TercetSeq2SeqForMultipleChoice:
        ids, mask = ids[:, None].expand(2, 3, 7), mask[:, None].expand(2, 3, 7)
    start = model.config.decoder_start_token_id
    again = torch.nn.functional.pad(ids[..., :-1], (1, 0), value=start)
    alone = model(ids, mask)
    given = model(ids, mask, decoder_input_ids=again, decoder_attention_mask=mask)
    assert_close(given.to_tuple()[0], alone.to_tuple()[0])
    other = model(ids, mask, decoder_input_ids=ids[..., :4], decoder_attention_mask=mask[..., :4])
    assert not torch.equal(other.encoder_last_hidden_state, alone.to_tuple()[0])
    if head is TercetSeq2SeqForTokenClassification:
        assert other.logits.shape == (2, 4, 2)
    assert not torch.allclose(other.to_tuple()[0].flatten()[:2], alone.to_tuple()[0].flatten()[:2])


STACKS = {
    TercetEncoderForSentenceEmbedding: TercetEncoderModel,
    TercetDecoderForSentenceEmbedding: TercetDecoderModel,
}


POOLINGS = {
    "first": lambda states: states[0],
    "last": lambda states: states[-1],
    "mean": lambda states: states.mean(0),
}


MODES = {"first": "cls", "last": "lasttoken", "mean": "mean"}
"""What sentence-transformers calls them."""


every_embedder = pytest.mark.parametrize("embedder", STACKS)


every_pooling = pytest.mark.parametrize("pooling", POOLINGS)


@every_embedder
@every_pooling
@pytest.mark.parametrize("training", [False, True])
def test_every_layout_gives_the_pooled_states_of_each_text(embedder, pooling, training, task_builder, batch):
    model = task_builder(embedder, "bert", classifier_pooling=pooling).train(training)
    states = [model.model(ids[None]).last_hidden_state[0] for ids in batch.sequences]
    expected = F.normalize(torch.stack([POOLINGS[pooling](each) for each in states]), dim=-1)
    for side in ("right", "left"):
        ids, mask = batch.padded(side)
        assert_close(model(ids, mask).sentence_embeddings, expected, **CLOSE)
    stream = batch.packed()
    for told in ({"cu_seq_lens_q", "position_ids"}, {"cu_seq_lens_q"}, {"position_ids"}):
        inputs = {name: stream[name] for name in {"input_ids", *told}}
        assert_close(model(**inputs).sentence_embeddings, expected, **CLOSE)


@every_embedder
@every_pooling
def test_vectors_are_those_of_sentence_transformers(embedder, pooling, task_builder, batch):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    model, (ids, mask) = task_builder(embedder, classifier_pooling=pooling), batch.padded()
    features = {"token_embeddings": model.model(ids, mask).last_hidden_state, "attention_mask": mask}
    expected = Normalize()(Pooling(32, pooling_mode=MODES[pooling])(features))["sentence_embedding"]
    assert_close(model(ids, mask).sentence_embeddings, expected, **CLOSE)


@every_embedder
def test_a_pretrained_model_gives_vectors_without_new_weights(embedder, task_builder, tmp_path):
    pretrained = task_builder(STACKS[embedder])
    pretrained.save_pretrained(tmp_path)
    loaded, report = embedder.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert set(loaded.state_dict()) == {f"model.{name}" for name in pretrained.state_dict()}


@every_embedder
def test_recordings_and_half_precision_come_along(embedder, task_builder, batch):
    model, (ids, mask) = task_builder(embedder), batch.padded()
    outputs = model(ids, mask, output_hidden_states=True, output_attentions=True)
    assert (len(outputs.hidden_states), len(outputs.attentions)) == (3, 2)
    halved = model.bfloat16()(ids, mask).sentence_embeddings
    assert halved.dtype == torch.bfloat16
    assert_close(halved.float(), outputs.sentence_embeddings, rtol=0.1, atol=0.1)
    assert_close(halved.float().norm(dim=-1), torch.ones(5), rtol=1e-2, atol=1e-2)


@every_embedder
def test_vectors_compile_without_graph_breaks(embedder, task_builder, batch):
    torch._dynamo.reset()
    model, (ids, mask) = task_builder(embedder, classifier_pooling="mean").train(), batch.padded()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert_close(compiled(ids, mask).sentence_embeddings, model(ids, mask).sentence_embeddings, **CLOSE)


@every_embedder
def test_a_text_without_any_token_has_no_direction_and_no_effect(embedder, task_builder, batch):
    model, (ids, mask) = task_builder(embedder, classifier_pooling="mean").train(), batch.padded()
    mask[4] = 0
    vectors = model(ids, mask).sentence_embeddings
    (vectors @ vectors.mT).sum().backward()
    assert vectors[4].abs().max() == 0
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)


@pytest.mark.parametrize("bounds", [None, torch.tensor([0, 3000])], ids=["padded", "packed"])
def test_sums_of_long_texts_are_beyond_float16_but_their_means_are_not(bounds):
    states = torch.full((1, 3000, 4), 30.0)
    with torch.autocast("cpu", torch.float16):
        for each in (states, states.half()):
            mean = pool_mean(each, find_sequences(each, cu_seq_lens=bounds))
            assert torch.equal(mean, each[:, 0])
