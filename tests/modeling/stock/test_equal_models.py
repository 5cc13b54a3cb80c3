"""Stock models and ours compute, learn and generate the same from the same weights, in every layout.

Certificates compare rows that are padded on the right, by one kernel. Here are both kernels and both sides,
padded and packed batches, labels of pads and spans beyond the text, beams and static caches, and models that
transformers has and no table of ours: PyTorch's layers as the Transformer of 2017, and Qwen3-Next.

Shapes: B batch, S source positions, T target positions, C model width, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.testing import assert_close
from transformers import AutoConfig, GPT2Config, GPT2LMHeadModel, Qwen3NextConfig, Qwen3NextForCausalLM
from transformers.loss.loss_utils import ForQuestionAnsweringLoss
from transformers.models.t5.modeling_t5 import T5Attention

from tercet.configs.recipe import load_preset
from tercet.modeling import (
    TercetDecoderConfig,
    TercetDecoderForCausalLM,
    TercetEncoderConfig,
    TercetSeq2SeqForConditionalGeneration,
)
from tercet.modeling.attention.relative_bias import RelativeBias
from tercet.modeling.stock import from_stock
from tercet.modeling.stock.certificate import predictions, stock_lesson, student_lesson, without_dropout
from tercet.modeling.stock.models import links_between
from tercet.modeling.stock.weights import Links, Rearrangement, Table, Via, chunked, link

from .conftest import COMMON, VOCAB_SIZE

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}
"""Some stock models compute a part in float32, whatever they are given."""
NO_IDS = {"bos_token_id": None, "eos_token_id": None}
GLOBAL, LOCAL = "full_attention", "sliding_attention"
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 0.1,
    "high_freq_factor": 2.0,
    "original_max_position_embeddings": 16,
}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 500.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 500.0, "original_max_position_embeddings": 6}
BIASES = {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True}
MODERNBERT = {
    "every third layer is global": {"layer_types": [GLOBAL, LOCAL, LOCAL, GLOBAL]},
    "the same with all biases": {"layer_types": [GLOBAL, LOCAL, LOCAL, GLOBAL]} | BIASES,
    "no layer is global": {"layer_types": [LOCAL, LOCAL], "num_hidden_layers": 2} | BIASES,
    "the last layer is global": {"layer_types": [LOCAL, GLOBAL], "num_hidden_layers": 2},
}
ROBERTA = {"type_vocab_size": 2, "num_labels": 3}
GPT_NEOX = {"num_attention_heads": 2, "rotary_pct": 0.25, "tie_word_embeddings": False}
VERSION_1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
BUCKETS = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 6}

ENCODERS: list[tuple[str, dict[str, Any]]] = [
    ("BertForPreTraining", {}),
    *((f"{name}ForSequenceClassification", {"num_labels": 3}) for name in ("Bert", "Electra", "DistilBert")),
    ("RobertaForSequenceClassification", ROBERTA),
    ("BertForTokenClassification", {"num_labels": 5}),
    ("BertForMultipleChoice", {}),
    ("BertForQuestionAnswering", {}),
    ("DistilBertForMaskedLM", {}),
    *(
        (f"Electra{head}", {"embedding_size": size})
        for head in ("Model", "ForMaskedLM", "ForPreTraining")
        for size in (20, 44)
    ),
    *((f"ModernBert{head}", options) for head in ("Model", "ForMaskedLM") for options in MODERNBERT.values()),
    *(
        ("ModernBertForSequenceClassification", {"classifier_pooling": pooling, "num_labels": 3})
        for pooling in ("cls", "mean")
    ),
]
WRITERS: list[tuple[str, dict[str, Any]]] = [
    ("GPT2LMHeadModel", {}),
    ("GPTNeoXForCausalLM", GPT_NEOX),
    ("GPTNeoXForCausalLM", GPT_NEOX | {"use_parallel_residual": False}),
    ("OPTForCausalLM", {}),
    ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    ("LlamaForCausalLM", {"hidden_act": "relu2"}),
    ("LlamaForCausalLM", {"rope_parameters": LLAMA_3, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    ("LlamaForCausalLM", {"rope_parameters": LINEAR}),
    ("LlamaForCausalLM", {"rope_parameters": {"rope_theta": 100_000.0}, "tie_word_embeddings": True}),
    # Texts are longer than what these were trained for.
    ("LlamaForCausalLM", {"rope_parameters": DYNAMIC, "max_position_embeddings": 6}),
    ("Qwen3ForCausalLM", {"rope_parameters": YARN, "max_position_embeddings": 24}),
    ("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    ("Qwen3ForCausalLM", {"rms_norm_eps": 0.01}),
    ("MistralForCausalLM", {"sliding_window": 3}),
]
TRANSLATORS: list[tuple[str, dict[str, Any]]] = [
    ("BartForConditionalGeneration", {}),
    ("MarianMTModel", {"activation_function": "relu", "scale_embedding": True}),
    ("T5ForConditionalGeneration", BUCKETS),
    ("T5ForConditionalGeneration", BUCKETS | VERSION_1_1),
]
READERS: list[tuple[str, dict[str, Any]]] = [
    ("GPT2ForSequenceClassification", {"num_labels": 3, "pad_token_id": 0}),
    ("GPT2ForTokenClassification", {"num_labels": 5}),
    ("BartForSequenceClassification", {"num_labels": 3}),
    ("BartForQuestionAnswering", {}),
]
"""Models that write, with the heads of tasks."""
CASES = [*ENCODERS, *WRITERS, *TRANSLATORS, *READERS]
KERNELS = ("eager", "sdpa")
BOTH_SIDES = ("ModernBertModel", "ModernBertForMaskedLM", "GPT2", "Mistral", "T5")
LEFT = ("OPT", "GPTNeoX", "Llama", "Qwen")
"""On which sides pads stand; else on the right."""


class Pair:
    """A stock model in evaluation, and ours with its weights, both in float64 and without dropout."""

    def __init__(self, stock: Any, ours: Any, links: Links):
        self.stock, self.links, self.name = stock.eval().double(), links, type(stock).__name__
        self.ours = type(ours)(without_dropout(ours.config)).double().eval()
        self.ours.load_state_dict(links.to_ours(self.stock.state_dict()), strict=False)

    def in_every_way(self) -> Iterator[str]:
        """Let our model compute by each kernel: padded, as in evaluation, and packed, as in training."""
        for kernel in KERNELS:
            self.ours.set_attn_implementation(kernel)
            for is_packed in (False, True):
                self.ours.train(is_packed)
                yield f"{kernel}, {'packed' if is_packed else 'padded'}"
        self.ours.eval()

    def told(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add what a stock decoder has to be told: real tokens are counted, which `generate` does alone."""
        taken = signature(self.stock.forward).parameters
        is_decoder = self.ours.config.model_type == "tercet_decoder"
        if not (is_decoder and "position_ids" in taken and "attention_mask" in inputs):
            return inputs
        return inputs | {"position_ids": (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)}

    def assert_same_predictions(self, inputs: dict[str, Tensor], real: Tensor) -> None:
        """Compare logits, or last states, where `real` (B, T) is 1; those of whole rows everywhere."""

        def predicted(model: Any, inputs: dict[str, Tensor]) -> list[Tensor]:
            with torch.no_grad():
                found = predictions(model(**inputs))
            return [x[real == 1] if x.shape[:2] == real.shape else x for x in found]

        expected = predicted(self.stock, self.told(inputs))
        for way in self.in_every_way():
            assert_close(predicted(self.ours, inputs), expected, **CLOSE, msg=in_words(way))

    def assert_same_lesson(
        self,
        inputs: dict[str, Tensor],
        stock_inputs: dict[str, Tensor] | None = None,
        loss_of: Callable[[Any], Tensor] = lambda outputs: outputs.loss,
        stock_loss_of: Callable[[Any], Tensor] | None = None,
    ) -> None:
        """Compare the loss, and its gradient by each parameter of the stock model, which ours are made of."""
        stock_inputs = self.told(inputs) if stock_inputs is None else stock_inputs
        loss, gradients = stock_lesson(self.stock, stock_inputs, stock_loss_of or loss_of)
        names = [name for name, each in self.stock.named_parameters() if each.requires_grad]
        for way in self.in_every_way():
            own_loss, own_gradients = student_lesson(self.ours, self.stock, self.links, inputs, loss_of)
            assert_close(own_loss, loss, **CLOSE, msg=in_words(f"loss, {way}"))
            for name, ours, theirs in zip(names, own_gradients, gradients, strict=True):
                near = {"rtol": 0, "atol": 1e-5 * float(theirs.abs().max()) + 1e-6, "check_dtype": False}
                assert_close(ours, theirs, **near, msg=in_words(f"gradient of {name}, {way}"))


def in_words(what: str) -> Callable[[str], str]:
    """Put what is compared before what differs."""
    return f"{what}: {{}}".format


def draw(*lengths: int, side: str = "right", pad: int = 0, seed: int = 0) -> dict[str, Tensor]:
    """Draw ordinary ids (3 and more) of the given lengths, with pads on one side, and their mask."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(3, VOCAB_SIZE, (length,), generator=generator) for length in lengths]
    pad_rows = partial(nn.utils.rnn.pad_sequence, batch_first=True, padding_side=side)
    return {
        "input_ids": pad_rows(rows, padding_value=pad),
        "attention_mask": pad_rows([torch.ones_like(row) for row in rows]),
    }


@pytest.fixture
def pair(stock) -> Callable[..., Pair]:
    """Put a stock model and ours beside each other."""

    def build(name: str, **options: Any) -> Pair:
        model = stock(name, **options)
        ours = from_stock(model)
        return Pair(model, ours, links_between(model, ours))

    return build


def batch_of(pair: Pair, side: str) -> dict[str, Tensor]:
    """Draw what a model reads: segments, an end of each text, or choices, where it reads them."""
    config, name = pair.stock.config, pair.name
    lengths = (14, 5, 9, 2) if name.startswith("ModernBert") else (9, 4, 6, 2)
    batch = draw(*lengths, side=side, pad=config.pad_token_id or 0)
    if pair.ours.config.type_vocab_size > 1:
        half = batch["attention_mask"].sum(1, keepdim=True) // 2
        batch["token_type_ids"] = (torch.arange(lengths[0]) >= half).long()
    if name.startswith("BartFor"):  # whose tokenizer ends texts so, where its heads read them
        last = batch["attention_mask"].sum(-1, keepdim=True) - 1
        batch["input_ids"] = batch["input_ids"].scatter(1, last, config.eos_token_id)
    if name.endswith("MultipleChoice"):
        return {key: value.unflatten(0, (2, 2)) for key, value in batch.items()}
    return batch


def target_of(pair: Pair) -> tuple[dict[str, Tensor], Tensor]:
    """Draw a target for a model that translates: what its decoder reads, and the labels."""
    target = draw(5, 3, 8, 1, pad=pair.stock.config.pad_token_id, seed=1)
    labels = target["input_ids"].masked_fill(target["attention_mask"] == 0, -100)
    return {f"decoder_{name}": value for name, value in target.items()}, labels


def sides(cases: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """List cases with the sides on which their pads may stand."""
    return [
        pytest.param(name, options, side, id=f"{name}-{options}-{side}")
        for name, options in cases
        for side in ("right", "left")
        if name.startswith(BOTH_SIDES) or (side == "left") == name.startswith(LEFT)
    ]


@pytest.mark.parametrize(("name", "options", "side"), sides(CASES))
def test_predictions_losses_and_gradients_are_equal(pair, name, options, side):
    both = pair(name, **options)
    inputs = batch_of(both, side)
    ids, real = inputs["input_ids"], inputs["attention_mask"] == 1
    if (name, options) in TRANSLATORS:
        target, labels = target_of(both)
        both.assert_same_predictions(inputs | target, target["decoder_attention_mask"])
        mask = {"decoder_attention_mask": target["decoder_attention_mask"]}
        for told in ({}, mask):
            both.assert_same_lesson(inputs | told | {"labels": labels})
        return
    both.assert_same_predictions(inputs, real)
    if name.endswith("Model") and name != "GPT2LMHeadModel" and name != "MarianMTModel":
        weights = torch.randn(int(real.sum()), 32, dtype=torch.double)
        both.assert_same_lesson(inputs, loss_of=lambda x: (x.last_hidden_state[real] * weights).sum())
        return
    if name.endswith("QuestionAnswering"):  # the last answer starts and ends beyond the text
        answers = {
            "start_positions": torch.tensor([2, 0, 5, 11]),
            "end_positions": torch.tensor([8, 3, 5, 12]),
        }
        with_answers = inputs | answers
        both.assert_same_lesson(with_answers, inputs, stock_loss_of=partial(span_loss, real, answers))
        return
    if (name, options) in WRITERS:
        # Ours knows that pads and first tokens are no targets; the stock model has to be told.
        is_target = real & (real.cumsum(-1) > 1)
        lesson = both.told(inputs) | {"labels": ids.masked_fill(~is_target, -100)}
        both.assert_same_lesson(inputs | {"labels": ids}, lesson)
        return
    both.assert_same_lesson(inputs | labels_of(both, ids, real))


def span_loss(real: Tensor, answers: dict[str, Tensor], outputs: Any) -> Tensor:
    """Compute the loss of answers without pads, which the stock model takes for possible ones."""
    start, end = (x.masked_fill(~real, -torch.inf) for x in (outputs.start_logits, outputs.end_logits))
    loss = ForQuestionAnsweringLoss(start, end, **answers)
    assert loss is not None
    return loss


def labels_of(pair: Pair, ids: Tensor, real: Tensor) -> dict[str, Tensor]:
    """Return what a model with a head learns; some tokens are no targets."""
    if "SequenceClassification" in pair.name:
        return {"labels": torch.tensor([0, 2, 1, 1])}
    if "MultipleChoice" in pair.name:
        return {"labels": torch.tensor([1, 0])}
    if pair.name == "ElectraForPreTraining":
        return {"labels": ids % 2}  # of pads, too, which neither of the two asks
    is_target = real & (torch.arange(ids.shape[1]) % 3 > 0)
    if "TokenClassification" in pair.name:
        return {"labels": (ids % 5).masked_fill(~is_target, -100)}
    pairs = {"next_sentence_label": torch.tensor([0, 1, 1, 0])} if "PreTraining" in pair.name else {}
    return {"labels": ids.flip(-1).masked_fill(~is_target, -100)} | pairs


def test_both_losses_of_bert_are_equal(pair):
    both = pair("BertForPreTraining")
    inputs = batch_of(both, "right")
    ids, real = inputs["input_ids"], inputs["attention_mask"] == 1
    labels = labels_of(both, ids, real)
    stock = both.stock(**inputs)
    of_tokens = cross_entropy(stock.prediction_logits.mT, labels["labels"])
    of_pairs = cross_entropy(stock.seq_relationship_logits, labels["next_sentence_label"])
    for way in both.in_every_way():
        ours = both.ours(**inputs, **labels)
        assert_close(ours.masked_lm_loss, of_tokens, msg=in_words(way))
        assert_close(ours.next_sentence_loss, of_pairs, msg=in_words(way))


def test_spans_in_texts_of_one_length_have_the_loss_of_bert(pair):
    both = pair("BertForQuestionAnswering")
    answers = {"start_positions": torch.tensor([2, 0]), "end_positions": torch.tensor([6, 7])}
    both.assert_same_lesson(draw(7, 7) | answers)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_last_token_is_found_without_a_mask(pair, side):
    """By the id of pads, in GPT-2 and ours."""
    both = pair("GPT2ForSequenceClassification", num_labels=3, pad_token_id=0)
    inputs = {"input_ids": batch_of(both, side)["input_ids"]}
    both.assert_same_lesson(inputs | {"labels": torch.tensor([2, 0, 1, 1])})


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("options", MODERNBERT.values(), ids=MODERNBERT)
def test_recorded_attentions_equal_modernbert(pair, options, side):
    both = pair("ModernBertModel", **options)
    inputs = batch_of(both, side)
    both.stock.set_attn_implementation("eager")  # whose masks are none in float64
    models = (both.ours.float(), both.stock.float())
    stock = models[1](**inputs, output_attentions=True).attentions
    real = inputs["attention_mask"] == 1
    for kernel in KERNELS:
        both.ours.set_attn_implementation(kernel)
        ours = both.ours(**inputs, output_attentions=True).attentions
        for found, expected in zip(ours, stock, strict=True):
            assert_close(found.transpose(1, 2)[real], expected.transpose(1, 2)[real], **CLOSE)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize(("name", "options"), [*WRITERS, *TRANSLATORS], ids=str)
def test_texts_are_equal(pair, name, options, beams):
    both = pair(name, **options)
    side = "left" if (name, options) in WRITERS else "right"
    batch = draw(6, 3, 4, 1, side=side, pad=both.stock.config.pad_token_id or 0)
    assert_same_texts(both, batch, num_beams=beams)


def test_texts_from_a_static_cache_beyond_the_window_equal_mistral(pair):
    both = pair("MistralForCausalLM", sliding_window=3)
    assert_same_texts(both, draw(6, 3, 5, 1, side="left"), cache_implementation="static")


def assert_same_texts(both: Pair, batch: dict[str, Tensor], **options: Any) -> None:
    """Compare what both write, which has to be of several words."""
    # Without the ban on repetition, random models with tied embeddings say one word again and again.
    options |= {"do_sample": False, "no_repeat_ngram_size": 1, "max_new_tokens": 9}
    options |= {"pad_token_id": both.stock.config.pad_token_id or 0}
    for model in (both.ours, both.stock):
        model.generation_config.update(eos_token_id=None, forced_eos_token_id=None)
    expected = both.stock.generate(**batch, **options)
    for kernel in KERNELS:
        both.ours.set_attn_implementation(kernel)
        assert torch.equal(both.ours.generate(**batch, **options), expected), kernel
    prompt = 0 if both.ours.config.is_encoder_decoder else batch["input_ids"].shape[1]
    assert len(expected[:, prompt:].unique()) > 8


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 6), (20, 300), (7, 9)])
def test_buckets_equal_t5(is_causal, num_buckets, max_distance):
    config = (TercetDecoderConfig if is_causal else TercetEncoderConfig)(
        relative_attention_num_buckets=num_buckets, relative_attention_max_distance=max_distance
    )
    distances = torch.arange(-600, 601)
    expected = T5Attention._relative_position_bucket(distances, not is_causal, num_buckets, max_distance)
    assert torch.equal(RelativeBias(config, is_causal=is_causal).buckets(distances), expected)


def only_to_ours(rearrange: Callable[[Tensor], list[Tensor]]) -> Rearrangement:
    """Turn a tensor into ours; nothing goes back."""
    return Rearrangement(lambda tensors, place: rearrange(tensors[0]), lambda tensors, place: [])


NUM_HEADS = COMMON["num_attention_heads"]
WITH_GATES = only_to_ours(
    lambda x: [part.flatten(0, 1) for part in x.unflatten(0, (NUM_HEADS, 2, -1)).unbind(1)]
)
"""Qwen3-Next keeps the query and the gate of each head beside each other."""
ABOVE_ONE = only_to_ours(lambda x: [x + 1])
"""Its norms multiply by what is above one."""
LAYER = "model.layers.*."
QWEN3_NEXT = {
    "model.embed_tokens.weight": "model.embeddings.embed_tokens.weight",
    f"{LAYER}input_layernorm.*": Via(f"{LAYER}self_attention_norm.*", ABOVE_ONE),
    f"{LAYER}self_attn.q_proj.*": Via(f"{LAYER}self_attention.{{q_proj,gate.g_proj}}.*", WITH_GATES),
    **{f"{LAYER}self_attn.{x}_proj.*": f"{LAYER}self_attention.{x}_proj.*" for x in "kvo"},
    **{f"{LAYER}self_attn.{x}_norm.*": Via(f"{LAYER}self_attention.{x}_norm.*", ABOVE_ONE) for x in "qk"},
    f"{LAYER}post_attention_layernorm.*": Via(f"{LAYER}feed_forward_norm.*", ABOVE_ONE),
    f"{LAYER}mlp.*.weight": f"{LAYER}feed_forward.*.weight",
    "model.norm.*": Via("model.norm.*", ABOVE_ONE),
    "lm_head.weight": "lm_head.weight",
}


@pytest.fixture
def qwen3_next() -> Pair:
    torch.manual_seed(0)
    fields = COMMON | {"num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 16, **NO_IDS}
    fields |= {"tie_word_embeddings": False, "attention_bias": True, "pad_token_id": 0}
    theirs = Qwen3NextConfig(**fields, layer_types=[GLOBAL] * 2, mlp_only_layers=[0, 1])
    gates = {"attention_gate": "elementwise", "use_qk_norm": True}
    gates |= {"rope_parameters": {"partial_rotary_factor": 0.25}}
    stock = Qwen3NextForCausalLM(theirs)
    return scattered_pair(stock, TercetDecoderForCausalLM(TercetDecoderConfig(**fields, **gates)), QWEN3_NEXT)


def scattered_pair(stock: Any, ours: Any, table: Table) -> Pair:
    """Draw all weights of a stock model, so that no bias is 0 and no norm is 1, and put ours beside it."""
    with torch.no_grad():
        for parameter in stock.parameters():
            kept = parameter if parameter.dim() == 1 else 0
            parameter.copy_(kept + 0.15 * torch.randn_like(parameter))
    return Pair(stock, ours, link(stock, ours, table))


def test_qwen3_next_is_equal(qwen3_next):
    batch = draw(9, 4, 6, 1, side="left")
    real = batch["attention_mask"] == 1
    qwen3_next.assert_same_predictions(batch, batch["attention_mask"])
    labels = batch["input_ids"].masked_fill(~(real & (real.cumsum(-1) > 1)), -100)
    qwen3_next.assert_same_lesson(
        batch | {"labels": batch["input_ids"]}, qwen3_next.told(batch) | {"labels": labels}
    )


def test_texts_equal_qwen3_next(qwen3_next):
    assert_same_texts(qwen3_next, draw(6, 3, 4, 1, side="left"))


PYTORCH = {"embedding.weight": "model.encoder.embeddings.embed_tokens.weight"} | {
    f"{stack}.*.{theirs}.*": f"model.{stack}.layers.*.{ours}.*"
    for stack, norms in (("encoder", ("norm1", "norm2")), ("decoder", ("norm1", "norm3")))
    for theirs, ours in (
        ("self_attn.out_proj", "self_attention.o_proj"),
        ("multihead_attn.out_proj", "cross_attention.o_proj"),
        ("linear1", "feed_forward.up_proj"),
        ("linear2", "feed_forward.down_proj"),
        (norms[0], "self_attention_norm"),
        (norms[1], "feed_forward_norm"),
    )
}
PYTORCH |= {"decoder.*.norm2.*": "model.decoder.layers.*.cross_attention_norm.*"} | {
    f"{stack}.*.{theirs}.in_proj_*": Via(
        f"model.{stack}.layers.*.{ours}.{{q_proj,k_proj,v_proj}}.*", chunked(3)
    )
    for stack in ("encoder", "decoder")
    for theirs, ours in (("self_attn", "self_attention"), ("multihead_attn", "cross_attention"))
}
START = 2


class TorchTransformer(nn.Module):
    """The paper's model from PyTorch's layers, with its own embedding and shared output matrix."""

    config = None

    def __init__(self, width: int, heads: int, inner: int, num_layers: int):
        super().__init__()
        options: dict[str, Any] = {"dropout": 0.0, "layer_norm_eps": 1e-6, "batch_first": True}
        self.embedding = nn.Embedding(VOCAB_SIZE, width)
        self.encoder, self.decoder = (
            nn.ModuleList(kind(width, heads, inner, **options) for _ in range(num_layers))
            for kind in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
        )

    def forward(self, source: Tensor, is_pad: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) of what follows `target` (B, T), given `source` (B, S) with its pads."""
        x, y = self.embed(source), self.embed(target)
        for layer in self.encoder:
            x = layer(x, src_key_padding_mask=is_pad)
        is_future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        for layer in self.decoder:
            y = layer(y, x, tgt_mask=is_future, memory_key_padding_mask=is_pad)
        return y @ self.embedding.weight.T

    def embed(self, ids: Tensor) -> Tensor:
        """Section 3.4's scaled embedding and section 3.5's positions: (B, T) -> (B, T, C)."""
        width = self.embedding.embedding_dim
        waves = torch.zeros(ids.shape[1], width, dtype=torch.double)
        for position in range(ids.shape[1]):
            for i in range(width // 2):
                angle = position / 10_000 ** (2 * i / width)
                waves[position, 2 * i] = math.sin(angle)
                waves[position, 2 * i + 1] = math.cos(angle)
        return self.embedding(ids) * math.sqrt(width) + waves


def test_the_layers_of_pytorch_are_equal():
    torch.manual_seed(0)
    fields = load_preset("vaswani-base") | COMMON | {"decoder_start_token_id": START}
    ours = TercetSeq2SeqForConditionalGeneration(AutoConfig.for_model(**fields))
    both = scattered_pair(TorchTransformer(32, NUM_HEADS, 48, 2), ours, PYTORCH)
    batch, target = draw(7, 9, 2, 5), draw(5, 3, 8, 1, seed=1)
    labels = target["input_ids"].masked_fill(target["attention_mask"] == 0, -100)
    read = torch.cat((torch.full_like(labels[:, :1], START), target["input_ids"][:, :-1]), dim=1)
    theirs = {"source": batch["input_ids"], "is_pad": batch["attention_mask"] == 0, "target": read}
    given = batch | {"decoder_input_ids": read, "decoder_attention_mask": target["attention_mask"]}
    expected = both.stock(**theirs)
    for way in both.in_every_way():
        found = both.ours(**given, use_cache=False).logits
        assert_close(found[labels != -100], expected[labels != -100], **CLOSE, msg=in_words(way))
    both.assert_same_lesson(
        given | {"labels": labels, "label_smoothing": 0.1},
        theirs,
        stock_loss_of=lambda logits: cross_entropy(logits.mT, labels, label_smoothing=0.1),
    )


def test_no_weights_are_drawn_for_a_stock_model():
    stock = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB_SIZE, n_embd=8, n_layer=1, n_head=2, n_positions=16))
    state = torch.random.get_rng_state()
    ours = from_stock(stock)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert ours.lm_head.weight is ours.get_input_embeddings().weight
