"""The autoencoder of sentences: what its decoder reads, and what it shares with its encoder."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tercet.data.steps.streams import two_streams
from tercet.modeling import TercetEncoderConfig
from tercet.pretraining.objectives.sentence_denoising import SentenceAutoencoder

SIZES = {
    "vocab_size": 30,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
}
CLASSIC = {
    "position_embedding_type": "learned",
    "embedding_norm": True,
    "norm_placement": "post",
    "norm_type": "layer_norm",
    "head_transform": True,
    "head_bias": True,
    "attention_bias": True,
}
SOURCES = [np.array([1, 9, 2]), np.array([1, 8, 11, 13, 2])]
TARGETS = [np.array([7, 9, 5, 2]), np.array([8, 6, 11, 12, 13, 20, 2])]


def make_model(pooling: str = "mean", **fields) -> SentenceAutoencoder:
    torch.manual_seed(0)
    return SentenceAutoencoder(TercetEncoderConfig(**SIZES | {"classifier_pooling": pooling} | fields)).eval()


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("fields", [{}, CLASSIC])
def test_the_autoencoder_equals_its_definition(fields, pooling, is_training):
    """Each sentence alone, without packing: pool the states, and let the decoder attend to the one vector."""
    model = make_model(pooling, **fields)
    losses, gradients = [], []
    for compute in (packed_loss, single_loss):
        model.train(is_training and compute is packed_loss)
        model.zero_grad()
        loss = compute(model, pooling)
        loss.backward()
        losses.append(loss.detach())
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    torch.testing.assert_close(*losses)
    for name, gradient in gradients[0].items():
        assert gradient is not None, name
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-4, atol=1e-5, msg=name)


def packed_loss(model: SentenceAutoencoder, pooling: str) -> torch.Tensor:
    return model(two_streams(SOURCES, TARGETS, 1))[0]


def single_loss(model: SentenceAutoencoder, pooling: str) -> torch.Tensor:
    total = torch.zeros(())
    for source, target in zip(SOURCES, TARGETS, strict=True):
        states = model.encoder.model(torch.from_numpy(source)[None]).last_hidden_state
        vector = states[:, 0] if pooling == "first" else states.mean(1)
        read = torch.tensor([[1, *target[:-1]]])
        decoded = model.decoder.model(read, encoder_hidden_states=vector[:, None], use_cache=False)
        logits = model.decoder.compute_logits(decoded.last_hidden_state)
        total = total + F.cross_entropy(logits[0], torch.from_numpy(target), reduction="sum")
    return total


def test_a_sentence_is_written_from_its_own_vector_alone():
    model, batch = make_model(), two_streams(SOURCES, TARGETS, 1)
    vectors = model.embed(batch).detach().requires_grad_()
    assert vectors.shape == (2, 32)
    states = model.decoder(batch, vectors)[0]
    for part, own in ((states[:4], 0), (states[4:], 1)):
        (gradient,) = torch.autograd.grad(part.square().sum(), vectors, retain_graph=True)
        assert gradient[own].abs().max() > 0
        assert gradient[1 - own].abs().max() == 0


def test_the_decoder_sees_no_later_token():
    model, batch = make_model(), two_streams(SOURCES, TARGETS, 1)
    vectors = model.embed(batch)
    before = model.decoder(batch, vectors)[0]
    batch["decoder_input_ids"][0, 2] = 25
    after = model.decoder(batch, vectors)[0]
    assert torch.equal(before[:2], after[:2])
    assert not torch.equal(before[2], after[2])


@pytest.mark.parametrize("fields", [{}, CLASSIC])
def test_encoder_and_decoder_share_all_but_cross_attention_and_head(fields):
    model = make_model(**fields)
    encoder, decoder = (dict(part.named_parameters()) for part in (model.encoder, model.decoder))
    assert all(decoder[name] is parameter for name, parameter in encoder.items())
    own = decoder.keys() - encoder.keys()
    assert all(("cross_attention" in name) or name.startswith(("transform.", "lm_head.")) for name in own)
    assert any("cross_attention" in name for name in own)
    assert model.decoder.lm_head.weight is encoder["model.embeddings.embed_tokens.weight"]


def test_a_relative_bias_is_shared_by_none():
    model = make_model(position_embedding_type="relative_bias")
    encoder, decoder = (dict(part.model.named_parameters()) for part in (model.encoder, model.decoder))
    biases = [name for name in encoder if name.startswith("relative_bias")]
    assert biases
    assert not any(encoder[name] is decoder[name] for name in biases)
