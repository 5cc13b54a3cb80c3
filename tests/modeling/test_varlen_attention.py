"""What torch's varlen kernel is asked for. It runs on GPUs only: the definition answers in its place here."""

from contextlib import nullcontext

import pytest
import torch
from torch.testing import assert_close
from transformers import AttentionInterface
from transformers import modeling_flash_attention_utils as flash_utils
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from tercet.modeling.attention import gpu_kernels, kernels
from tercet.modeling.attention.gpu_kernels import ENDLESS, flash_operator, runs

from ..fixed_sizes import META, watch
from .kernel_differences import NOISE, disagreement


def by_definition(query, key, value, cu_q, cu_k, max_q, max_k, dropout, is_causal, _, *, scale, **window):
    """Read sequence by sequence, as the operator does."""
    assert (max_q, max_k) == (int(cu_q.diff().max()), int(cu_k.diff().max()))
    assert dropout == 0
    window_size = (window["window_size_left"], 0 if is_causal else window["window_size_right"])
    reads = []
    for (q_from, q_to), (k_from, k_to) in zip(
        torch.stack((cu_q[:-1], cu_q[1:]), 1).tolist(),
        torch.stack((cu_k[:-1], cu_k[1:]), 1).tolist(),
        strict=True,
    ):
        q, k, v = query[q_from:q_to], key[k_from:k_to], value[k_from:k_to]
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        scores = torch.einsum("thd,shd->hts", q, k) * scale
        back, ahead = (len(cu_q) * max_q if reach == ENDLESS else reach for reach in window_size)
        is_seen = torch.ones(scores.shape[-2:]).triu(-back).tril(ahead).bool()
        scores = scores.masked_fill(~is_seen, -torch.inf)
        reads.append(torch.einsum("hts,shd->thd", scores.softmax(-1), v))
    return (torch.cat(reads),)


@pytest.mark.parametrize("variant", ["modern", "grouped", "sliding", "qwen", "primer"])
def test_the_kernel_is_asked_for_what_the_groups_compute(
    member, variant, builder, batch, targets, monkeypatch
):
    model = builder(member, variant).train()
    ids, mask = batch.padded()
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": ids}
    if member == "seq2seq":
        inputs["decoder_input_ids"], inputs["decoder_attention_mask"] = targets.padded()
        inputs["labels"] = inputs["decoder_input_ids"]
    expected = model(**inputs).loss
    called = []

    def kernel(*arguments, **options):
        called.append(options)
        return by_definition(*arguments, **options)

    monkeypatch.setattr(gpu_kernels, "flash_operator", kernel)
    monkeypatch.setattr(kernels, "runs_varlen", lambda situation: True)
    assert_close(model(**inputs).loss, expected)
    assert called


@pytest.mark.parametrize(("too_wide", "agrees"), [(0, True), (1, False)])
def test_a_kernel_may_round_the_gradient_of_each_head_before_it_adds_them_up(too_wide, agrees):
    """As FlashAttention 2 does, where heads share a key: one step of bfloat16 near 5 is 0.03."""

    def attend(query, key, value, sequences, *, scaling, is_causal, sliding_window):
        heads = (
            x.repeat_interleave(query.shape[1] // x.shape[1], dim=1).float() for x in (query, key, value)
        )
        window = {"window_size_left": sliding_window - 1 + too_wide, "window_size_right": 0}
        sizes = sequences.flash_arguments.values()
        return by_definition(*heads, *sizes, 0, is_causal, False, scale=scaling, **window)[0].bfloat16()

    assert (disagreement(attend, torch.device("cpu")) < NOISE) == agrees


@pytest.mark.parametrize("variant", ["modern", "sliding", "qwen", "primer"])
@pytest.mark.parametrize("member", ["encoder", "decoder"])
def test_a_flash_kernel_is_asked_for_the_same(member, variant, builder, batch, monkeypatch):
    """A window of transformers' flash kernels counts the query itself, and means both sides unless causal."""

    def flash(module, query, key, value, mask, *, scaling, dropout, sliding_window, **bounds):
        reach = ENDLESS if sliding_window is None else sliding_window - 1
        (read,) = by_definition(
            *(x.transpose(1, 2)[0] for x in (query, key, value)),
            *(bounds[f"{name}_{side}"] for name in ("cu_seq_lens", "max_length") for side in "qk"),
            0.0,
            module.is_causal,
            False,
            scale=scaling,
            window_size_left=reach,
            window_size_right=reach,
        )
        return read[None], None

    model = builder(member, variant)
    expected = model(**batch.packed()).logits
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "flash_attention_2", flash)
    model.model.config._attn_implementation_internal = "flash_attention_2"
    assert_close(model(**batch.packed()).logits, expected)


def test_this_torch_has_it_with_gradients():
    """Without data: shapes of values and gradients, of shared keys, a window and dropout."""
    query, key, value = (torch.zeros(24, heads, 16, device="meta", requires_grad=True) for heads in (4, 2, 2))
    bounds = torch.zeros(4, dtype=torch.int32, device="meta")
    window = {"window_size_left": 3, "window_size_right": 0}
    read, *_ = flash_operator(
        query, key, value, bounds, bounds, 16, 16, 0.1, True, False, scale=0.25, **window
    )
    gradients = torch.autograd.grad(read.sum(), (query, key, value))
    assert [each.shape for each in (read, *gradients)] == [x.shape for x in (query, query, key, value)]


def test_the_kernel_computes_the_definition(monkeypatch):
    monkeypatch.setattr(gpu_kernels, "flash_operator", by_definition)
    assert disagreement(gpu_kernels.varlen_attention, torch.device("cpu"), torch.float32) < 1e-5
    monkeypatch.setattr(
        gpu_kernels, "flash_operator", lambda *a, **k: tuple(2 * x for x in by_definition(*a, **k))
    )
    assert disagreement(gpu_kernels.varlen_attention, torch.device("cpu"), torch.float32) > NOISE


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode])
def test_a_kernel_is_tried_whoever_asks_for_it_first(mode, monkeypatch):
    """Evaluation, vectors and prompts need no gradients, but the answer is kept for training, too."""
    monkeypatch.setattr(gpu_kernels, "flash_operator", by_definition)
    runs.cache_clear()
    with mode():
        assert runs("flash", gpu_kernels.varlen_attention, torch.device("cpu"))
    runs.cache_clear()


def test_a_kernel_that_fails_is_left_alone(monkeypatch, caplog):
    """Torch's is one on a CPU."""
    runs.cache_clear()
    assert not runs("flash", gpu_kernels.varlen_attention, torch.device("cpu"))
    runs.cache_clear()


class Flash:
    """A function as a kernel of the Hub brings it: it reads bounds, and takes windows, but no dropout."""

    def __init__(self):
        self.calls = 0

    def __call__(
        self,
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        softmax_scale,
        causal,
        window_size=(ENDLESS, ENDLESS),
    ):
        """Attend, as FlashAttention 3 does: nothing is dropped. The definition waits, the kernel does not."""
        self.calls += 1
        assert isinstance(max_seqlen_q, int)
        if q.is_meta:
            return torch.empty_like(q)
        window = dict(zip(("window_size_left", "window_size_right"), window_size, strict=True))
        lengths = max_seqlen_q, max_seqlen_k, 0.0, causal, False
        bounds = cu_seqlens_q, cu_seqlens_k
        return by_definition(q, k, v, *bounds, *lengths, scale=softmax_scale, **window)[0]


@pytest.mark.parametrize("variant", ["modern", "sliding", "qwen"])
@pytest.mark.parametrize("member", ["encoder", "decoder"])
def test_transformers_calls_a_flash_kernel_of_the_hub_with_bounds(
    member, variant, builder, batch, monkeypatch
):
    """Without reading them back, and never without what was asked for."""
    name, kernel = f"kernels-community/{member}-{variant}", Flash()
    monkeypatch.setattr(flash_utils, "_lazy_imports", lambda *_, **__: (None, kernel, None, None, None))
    monkeypatch.setattr(flash_utils, "_loaded_implementation", None)
    monkeypatch.setitem(AttentionInterface._global_mapping, name, flash_attention_forward)
    monkeypatch.setitem(AttentionMaskInterface._global_mapping, name, flash_attention_mask)
    model = builder(member, variant)
    inputs = batch.packed() | {"max_length_q": 9}
    expected = model(**inputs).logits
    model.model.config._attn_implementation_internal = name
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    assert_close(model(**inputs).logits, expected)
    far = {name: x.to(META) if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}
    model.to(META)
    with watch(monkeypatch):
        model(**far)
    assert kernel.calls == 4
    model.config.attention_dropout = 0.1
    with watch(monkeypatch), pytest.raises(ValueError, match=r"no dropout_p, .*: set attention_dropout=0"):
        model.train()(**far)
