"""What `GenerationConfig` asks of the scores, against a plain loop: one token, one whole pass, no cache."""

import pytest
import torch
from transformers import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    ExponentialDecayLengthPenalty,
    ForcedBOSTokenLogitsProcessor,
    ForcedEOSTokenLogitsProcessor,
    InfNanRemoveLogitsProcessor,
    LogitNormalization,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    PrefixConstrainedLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
    WatermarkingConfig,
)

LENGTH = 8
ENDS = list(range(3, 104, 4))
SAMPLED = {"do_sample": True, "top_k": 0}
UNWANTED = list(range(4, 70))
WATERMARK = WatermarkingConfig(bias=4.0)


def green_words():
    """Build what prefers the words of the watermark."""
    return WATERMARK.construct_processor(104, "cpu")


def even_tokens(batch_idx, written):
    """Allow every second token."""
    return list(range(4, 104, 2))


# What is asked for, and what that does to scores: built from the model, the prompt and the first new place.
SCORES = {
    "do_sample": (SAMPLED, lambda *_: []),
    "temperature": (SAMPLED | {"temperature": 0.6}, lambda *_: [TemperatureLogitsWarper(0.6)]),
    "top_k": (SAMPLED | {"top_k": 7}, lambda *_: [TopKLogitsWarper(7)]),
    "top_p": (SAMPLED | {"top_p": 0.7}, lambda *_: [TopPLogitsWarper(0.7)]),
    "min_p": (SAMPLED | {"min_p": 0.1}, lambda *_: [MinPLogitsWarper(0.1)]),
    "top_h": (SAMPLED | {"top_h": 0.5}, lambda *_: [TopHLogitsWarper(0.5)]),
    "typical_p": (SAMPLED | {"typical_p": 0.7}, lambda *_: [TypicalLogitsWarper(0.7)]),
    "epsilon_cutoff": (SAMPLED | {"epsilon_cutoff": 0.01}, lambda *_: [EpsilonLogitsWarper(0.01)]),
    "eta_cutoff": (SAMPLED | {"eta_cutoff": 0.01}, lambda *_: [EtaLogitsWarper(0.01)]),
    "renormalize_logits": (SAMPLED | {"renormalize_logits": True}, lambda *_: [LogitNormalization()]),
    "watermarking_config": (SAMPLED | {"watermarking_config": WATERMARK}, lambda *_: [green_words()]),
    "repetition_penalty": ({"repetition_penalty": 1.7}, lambda *_: [RepetitionPenaltyLogitsProcessor(1.7)]),
    "no_repeat_ngram_size": ({"no_repeat_ngram_size": 1}, lambda *_: [NoRepeatNGramLogitsProcessor(1)]),
    "encoder_repetition_penalty": (
        {"encoder_repetition_penalty": 3.0},
        lambda model, prompt, start: [EncoderRepetitionPenaltyLogitsProcessor(3.0, prompt)],
    ),
    "encoder_no_repeat_ngram_size": (
        {"encoder_no_repeat_ngram_size": 1},
        lambda model, prompt, start: [EncoderNoRepeatNGramLogitsProcessor(1, prompt)],
    ),
    "bad_words_ids": (
        {"bad_words_ids": [[word] for word in UNWANTED]},
        lambda *_: [NoBadWordsLogitsProcessor([[word] for word in UNWANTED])],
    ),
    "sequence_bias": (
        {"sequence_bias": {(word,): -9.0 for word in UNWANTED}},
        lambda *_: [SequenceBiasLogitsProcessor({(word,): -9.0 for word in UNWANTED})],
    ),
    "suppress_tokens": (
        {"suppress_tokens": UNWANTED},
        lambda *_: [SuppressTokensLogitsProcessor(UNWANTED)],
    ),
    "begin_suppress_tokens": (
        {"begin_suppress_tokens": UNWANTED},
        lambda model, prompt, start: [SuppressTokensAtBeginLogitsProcessor(UNWANTED, start)],
    ),
    "prefix_allowed_tokens_fn": (
        {"prefix_allowed_tokens_fn": even_tokens},
        lambda *_: [PrefixConstrainedLogitsProcessor(even_tokens, 1)],
    ),
    "min_length": (
        {"min_length": 9, "eos_token_id": ENDS},
        lambda *_: [MinLengthLogitsProcessor(9, ENDS)],
    ),
    "min_new_tokens": (
        {"min_new_tokens": 6, "eos_token_id": ENDS},
        lambda model, prompt, start: [MinNewTokensLengthLogitsProcessor(start, 6, ENDS)],
    ),
    "exponential_decay_length_penalty": (
        {"exponential_decay_length_penalty": (2, 1.9), "eos_token_id": ENDS},
        lambda model, prompt, start: [ExponentialDecayLengthPenalty((2, 1.9), ENDS, start)],
    ),
    "forced_bos_token_id": ({"forced_bos_token_id": 9}, lambda *_: [ForcedBOSTokenLogitsProcessor(9)]),
    "forced_eos_token_id": (
        {"forced_eos_token_id": 9},
        lambda model, prompt, start: [ForcedEOSTokenLogitsProcessor(start + LENGTH, 9)],
    ),
    "remove_invalid_values": ({"remove_invalid_values": True}, lambda *_: [InfNanRemoveLogitsProcessor()]),
    "guidance_scale": (
        {"guidance_scale": 1.8},
        lambda model, *_: [UnbatchedClassifierFreeGuidanceLogitsProcessor(1.8, model, use_cache=False)],
    ),
}
ONLY_FOR = {"forced_bos_token_id": "seq2seq", "guidance_scale": "decoder"}


CELLS = [
    pytest.param(member, option, marks=pytest.mark.ecosystem("transformers", f"`generate({option}=...)`"))
    for option in SCORES
    for member in ("decoder", "seq2seq")
    if ONLY_FOR.get(option, member) == member
]


@torch.no_grad()
@pytest.mark.parametrize(("member", "option"), CELLS)
def test_scores_are_processed_as_in_a_plain_loop(member, option, build, write, prompt):
    model = build(member)
    options, build_processors = SCORES[option]
    options = {"eos_token_id": None} | options
    torch.manual_seed(1)
    generated = model.generate(prompt, max_new_tokens=LENGTH, pad_token_id=0, **options)
    processors = build_processors(model, prompt, 1 if member == "seq2seq" else prompt.shape[1])
    torch.manual_seed(1)
    ends = options["eos_token_id"] or ()
    assert torch.equal(generated, write(model, prompt, LENGTH, processors, ends, "do_sample" in options))
