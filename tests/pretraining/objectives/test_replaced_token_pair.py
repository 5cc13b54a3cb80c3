"""Generator and discriminator: what each reads, what they share, and how replacements are sampled."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tercet.configs.recipe import load_preset
from tercet.data.steps.streams import one_stream
from tercet.modeling import TercetEncoderConfig
from tercet.pretraining.objectives.replaced_tokens import ReplacedTokenPair, generator_config
from tercet.training.token_objective import sample_tokens

SIZES = {
    "vocab_size": 30,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
}
CLASSIC = {"position_embedding_type": "learned", "embedding_norm": True, "norm_placement": "post"}
MASK = 3


def make_pair(size: float = 0.5, **fields) -> ReplacedTokenPair:
    torch.manual_seed(0)
    return ReplacedTokenPair(TercetEncoderConfig(**SIZES | fields), size)


def make_batch() -> tuple[dict, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two sequences, and three masked tokens."""
    batch = one_stream([np.array([1, MASK, 9, 2]), np.array([1, 8, MASK, MASK, 11, 2])])
    return batch, torch.tensor([1, 6, 7]), torch.tensor([7, 12, 13]), torch.tensor([0.1, 0.5, 0.9])


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_draw_falls_into_the_interval_of_a_token(kind):
    logits = torch.tensor([0.1, 0.0, 0.6, 0.3]).log()
    draws = torch.tensor([0.0, 0.099, 0.101, 0.699, 0.701, 1 - 2**-24])
    assert sample_tokens(logits.expand(6, 4), draws, kind=kind).tolist() == [0, 0, 2, 2, 3, 3]


def test_samples_have_the_probabilities_of_the_softmax():
    rng = np.random.default_rng(0)
    logits, number = torch.from_numpy(rng.normal(size=12)), 100_000
    draws = torch.from_numpy(rng.random(number, dtype=np.float32))
    counts = sample_tokens(logits.expand(number, 12), draws).bincount(minlength=12)
    expected = logits.softmax(-1) * number
    deviation = (expected * (1 - logits.softmax(-1))).sqrt()
    assert ((counts - expected).abs() < 3 * deviation).all()


def test_the_pair_equals_its_definition():
    """Each sequence alone: mask, predict, sample, replace, judge."""
    pair = make_pair()
    batch, positions, labels, draws = make_batch()
    output = pair(batch, positions, labels, draws)
    mlm_loss, rtd_loss, judged = 0.0, 0.0, []
    for first, last in ((0, 4), (4, 10)):
        ids = batch["input_ids"][:, first:last].clone()
        logits = pair.generator.eval()(ids).logits[0]
        replaced = torch.zeros_like(ids)
        for position, label, draw in zip(positions - first, labels, draws, strict=True):
            if 0 <= position < last - first:
                mlm_loss += F.cross_entropy(logits[position], label)
                sample = int((logits[position].softmax(-1).cumsum(-1) > draw).nonzero()[0])
                ids[0, position], replaced[0, position] = sample, sample != label
        judgements = pair.discriminator(ids).logits
        rtd_loss += F.binary_cross_entropy_with_logits(judgements, replaced.float(), reduction="sum")
        judged.append(replaced)
    torch.testing.assert_close(output.mlm_loss, mlm_loss)
    torch.testing.assert_close(output.rtd_loss, rtd_loss)
    assert torch.equal(output.replaced, torch.cat(judged, dim=1))


def test_a_sample_that_is_the_original_token_is_no_replacement():
    """The generator here always predicts token 7: right at the first masked position, wrong at the others."""
    pair = make_pair(head_bias=True)
    with torch.no_grad():
        pair.generator.lm_head.bias[7] = 1e4
    batch, positions, labels, draws = make_batch()
    output = pair(batch, positions, labels, draws)
    assert output.replaced.tolist() == [[0, 0, 0, 0, 0, 0, 1, 1, 0, 0]]


def test_the_discriminator_reads_the_original_tokens_elsewhere(monkeypatch):
    pair, read = make_pair(), {}
    batch, positions, labels, draws = make_batch()
    forward = pair.discriminator.forward
    monkeypatch.setattr(
        pair.discriminator, "forward", lambda **given: forward(**(read.update(given) or given))
    )
    before = batch["input_ids"].clone()
    output = pair(batch, positions, labels, draws)
    is_masked = before == MASK
    assert torch.equal(read["input_ids"][~is_masked], before[~is_masked])
    assert torch.equal(read["input_ids"][is_masked] != labels, output.replaced[is_masked].bool())
    assert torch.equal(batch["input_ids"], before)


def test_the_discriminator_teaches_the_generator_nothing_but_the_shared_embeddings():
    pair = make_pair(**CLASSIC)
    pair(*make_batch()).rtd_loss.backward()
    shared = {id(p) for p in pair.discriminator.parameters()}
    for name, parameter in pair.generator.named_parameters():
        assert (parameter.grad is not None) == (id(parameter) in shared), name
    pair.zero_grad()
    pair(*make_batch()).mlm_loss.backward()
    own = {id(p) for p in pair.generator.parameters()}
    for name, parameter in pair.discriminator.named_parameters():
        assert (parameter.grad is not None) == (id(parameter) in own), name


@pytest.mark.parametrize("fields", [{}, CLASSIC, CLASSIC | {"embedding_size": 16}])
def test_all_embeddings_are_shared_and_projections_are_not(fields):
    pair = make_pair(**fields)
    ours, theirs = (dict(m.model.embeddings.named_parameters()) for m in (pair.generator, pair.discriminator))
    same = {name for name in ours if ours[name] is theirs.get(name)}
    assert same == {name for name in ours if not name.startswith("projection")}
    assert "embed_tokens.weight" in same
    assert pair.generator.lm_head.weight is theirs["embed_tokens.weight"]
    assert ("positions.embed_positions.weight" in same) == ("position_embedding_type" in fields)


def test_generators_have_a_share_of_the_widths_and_heads():
    """Table 6 of the paper: ELECTRA-small's generator has 64 channels and one head of 64."""
    config = generator_config(
        TercetEncoderConfig(**load_preset("electra-small") | {"model_type": None}), 0.25
    )
    sizes = (config.hidden_size, config.intermediate_size, config.num_attention_heads, config.head_dim)
    assert sizes == (64, 256, 1, 64)
    assert (config.num_hidden_layers, config.embedding_size, config.head_width) == (12, 128, 128)


def test_heads_that_share_keys_do_so_in_the_generator():
    fields = {"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}
    config = TercetEncoderConfig(**SIZES | fields)
    heads = [
        (each.num_attention_heads, each.num_key_value_heads)
        for each in (generator_config(config, size) for size in (1.0, 0.5, 0.25))
    ]
    assert heads == [(8, 2), (4, 1), (2, 2)]


def test_nothing_masked_is_judged_all_the_same():
    pair = make_pair()
    batch, *_ = make_batch()
    nothing = torch.zeros(0, dtype=torch.long)
    output = pair(batch, nothing, nothing, torch.zeros(0))
    assert output.mlm_loss == 0
    assert output.replaced.sum() == 0
    output.mlm_loss.backward()


def test_samples_are_the_same_some_at_a_time(monkeypatch):
    pair = make_pair()
    states, draws = torch.randn(9, 16), torch.rand(9)
    at_once = pair.sample(states, draws)
    monkeypatch.setattr("tercet.pretraining.objectives.replaced_tokens.LOGITS_AT_ONCE", 60)
    assert torch.equal(pair.sample(states, draws), at_once)
