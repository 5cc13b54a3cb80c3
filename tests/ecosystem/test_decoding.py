"""How `generate` searches and saves work: whatever it does, the tokens are those of the definition."""

import copy

import pytest
import torch
from torch.testing import assert_close
from transformers import CompileConfig, ContinuousBatchingConfig, GenerationConfig, TextIteratorStreamer
from transformers.utils.import_utils import is_optimum_quanto_available

GREEDY = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
COMPILED = CompileConfig(backend="eager", fullgraph=True)
COMPILED._compile_all_devices = True  # as a user must who compiles on a CPU

SAVINGS = {
    "do_sample=False": {},
    "num_beams=1": {"num_beams": 1},
    "use_cache=False": {"use_cache": False},
    "prefill_chunk_size=2": {"prefill_chunk_size": 2},
    "prompt_lookup_num_tokens=3": {"prompt_lookup_num_tokens": 3},
    "assistant_early_exit=1": {"assistant_early_exit": 1},
    'cache_implementation="dynamic"': {"cache_implementation": "dynamic"},
    'cache_implementation="static"': {"cache_implementation": "static"},
    'cache_implementation="static", compile_config=...': {
        "cache_implementation": "static",
        "compile_config": COMPILED,
    },
    'cache_implementation="offloaded"': {"cache_implementation": "offloaded"},
    'cache_implementation="offloaded_static"': {"cache_implementation": "offloaded_static"},
    'cache_implementation="quantized"': {"cache_implementation": "quantized"},
}
NEEDS = {
    "offloaded": pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    "quantized": pytest.mark.skipif(not is_optimum_quanto_available(), reason="needs optimum-quanto"),
}
ONLY_DECODERS = ("prefill_chunk_size", "assistant_early_exit", "quantized")
"""What transformers itself has for decoders only, by a part of the name."""

SAVING_CELLS = [
    pytest.param(
        member,
        saving,
        marks=[
            pytest.mark.ecosystem("transformers", f"`generate({saving})`"),
            *(mark for name, mark in NEEDS.items() if name in saving),
        ],
    )
    for saving in SAVINGS
    for member in ("decoder", "seq2seq")
    if member == "decoder" or not any(name in saving for name in ONLY_DECODERS)
]
generating = pytest.mark.parametrize("member", ["decoder", "seq2seq"])


@pytest.mark.parametrize(("member", "saving"), SAVING_CELLS)
def test_what_saves_work_changes_no_token(member, saving, build, write, prompt):
    model = build(member)
    assert torch.equal(model.generate(prompt, **GREEDY | SAVINGS[saving]), write(model, prompt, 8))


@pytest.mark.ecosystem("transformers", "`generate(assistant_model=...)`")
@generating
def test_an_assistant_changes_no_token(member, build, write, prompt):
    model = build(member)
    assistant = copy.deepcopy(model)
    # It is often right, and often wrong.
    assistant.get_output_embeddings().weight.data += 0.05 * torch.randn(104, 32)
    written = model.generate(prompt, assistant_model=assistant, **GREEDY)
    assert torch.equal(written, write(model, prompt, 8))


@pytest.mark.ecosystem("transformers", "`generate(assistant_early_exit=1)`", member="decoder")
def test_drafts_of_an_early_exit_use_fewer_layers(build, prompt):
    model, passes = build("decoder"), []
    for layer in model.model.layers:
        layer.register_forward_hook(lambda module, *_: passes.append(module.self_attention.layer_idx))
    model.generate(prompt, assistant_early_exit=1, **GREEDY)
    assert passes.count(0) > passes.count(1) > 0
    assert model.config.num_hidden_layers == 2


@pytest.mark.ecosystem("transformers", "`generate` in left-padded batches")
@generating
def test_a_padded_batch_writes_what_each_prompt_does(member, build, write, writer, texts):
    model = build(member, eos_token_id=None)
    together = model.generate(**writer(texts, padding=True, return_tensors="pt"), **GREEDY)[:, -8:]
    alone = [write(model, writer(text, return_tensors="pt")["input_ids"], 8)[0, -8:] for text in texts]
    assert torch.equal(together, torch.stack(alone))


@torch.no_grad()
@pytest.mark.ecosystem("transformers", "`generate(num_beams=..., length_penalty=...)`")
@generating
def test_enough_beams_find_the_best_of_all_pairs(member, build, next_scores, prompt):
    model = build(member)
    best = model.generate(
        prompt,
        num_beams=104,
        num_return_sequences=3,
        length_penalty=0.5,
        return_dict_in_generate=True,
        output_scores=True,
        **GREEDY | {"max_new_tokens": 2},
    )
    start = prompt if member == "decoder" else torch.zeros(1, 1, dtype=torch.long)
    every = torch.cat((start.expand(104, -1), torch.arange(104)[:, None]), dim=1)
    first = next_scores(model, prompt, start).log_softmax(-1)
    second = next_scores(model, prompt.expand(104, -1), every).log_softmax(-1)
    expected = (first[0, :, None] + second).flatten().topk(3)
    pairs = torch.stack((expected.indices // 104, expected.indices % 104), dim=1)
    assert torch.equal(best.sequences[:, -2:], pairs)
    assert_close(best.sequences_scores, expected.values / 2**0.5, **CLOSE)


@pytest.mark.ecosystem("transformers", "`generate(num_beams=..., do_sample=True)`")
@generating
def test_sampled_beams_do_not_depend_on_the_cache(member, build, prompt):
    sampled = []
    for use_cache in (True, False):
        torch.manual_seed(1)
        options = GREEDY | {"do_sample": True, "num_beams": 3, "use_cache": use_cache}
        sampled.append(build(member).generate(prompt, **options))
    assert torch.equal(*sampled)


@pytest.mark.ecosystem("transformers", "`generate(num_return_sequences=...)`")
@generating
def test_several_texts_are_those_of_a_repeated_prompt(member, build, prompt):
    model, texts = build(member), []
    for given, number in ((prompt, 3), (prompt.repeat(3, 1), 1)):
        torch.manual_seed(1)
        texts.append(model.generate(given, **GREEDY | {"do_sample": True, "num_return_sequences": number}))
    assert torch.equal(*texts)
    assert len(texts[0].unique(dim=0)) == 3


@pytest.mark.ecosystem("transformers", "`generate(stop_strings=...)`")
@generating
def test_texts_end_behind_a_stop_string(member, build, write, writer, prompt):
    model, whole = build(member), write(build(member), prompt, 8)
    stop = writer.decode(whole[0, -4])
    length = next(length for length in range(1, 9) if stop in writer.decode(whole[0, -8:][:length]))
    writer.add_tokens("abcdef")  # with this word transformers tries what a tokenizer puts between words
    stopped = model.generate(prompt, stop_strings=[stop], tokenizer=writer, **GREEDY)
    assert torch.equal(stopped, whole[:, : whole.shape[1] - 8 + length])


@torch.no_grad()
@pytest.mark.ecosystem("transformers", "`generate(output_logits, output_scores, output_hidden_states, ...)`")
@generating
def test_what_is_recorded_is_that_of_one_whole_pass(member, build, prompt):
    model = build(member, attn_implementation="eager")
    recordings = ("logits", "scores", "hidden_states", "attentions")
    answer = model.generate(
        prompt,
        return_dict_in_generate=True,
        **dict.fromkeys([f"output_{name}" for name in recordings], True),
        **GREEDY,
    )
    written = answer.sequences[:, :-1]
    inputs = (
        {"input_ids": written} if member == "decoder" else {"input_ids": prompt, "decoder_input_ids": written}
    )
    whole = model(**inputs, output_hidden_states=True, output_attentions=True)
    side = "" if member == "decoder" else "decoder_"
    logits = whole.logits[0, -8:]
    assert_close(torch.cat(answer.logits), logits, **CLOSE)
    assert_close(torch.cat(answer.scores), logits, **CLOSE)
    chosen = model.compute_transition_scores(answer.sequences, answer.scores, normalize_logits=True)
    expected = logits.log_softmax(-1).gather(-1, answer.sequences[0, -8:, None])[:, 0]
    assert_close(chosen[0], expected, **CLOSE)
    states = torch.cat([step[1] for step in answer[f"{side}hidden_states"]], dim=1)
    assert_close(states, whole[f"{side}hidden_states"][1], **CLOSE)
    last = answer[f"{side}attentions"][-1][0]
    assert_close(last, whole[f"{side}attentions"][0][:, :, -1:], **CLOSE)


@pytest.mark.ecosystem("transformers", "`generate(streamer=TextIteratorStreamer(...))`")
@generating
def test_streamed_pieces_are_the_text(member, build, write, writer, prompt):
    streamer = TextIteratorStreamer(writer)
    build(member).generate(prompt, streamer=streamer, **GREEDY)
    assert "".join(streamer) == writer.decode(write(build(member), prompt, 8)[0])


PAGED = {
    "plain": {},
    "sliding": {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 3},
    "learned positions": {"position_embedding_type": "learned"},
}


@pytest.mark.ecosystem("transformers", "`generate_batch`, continuous batching", member="decoder")
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", PAGED)
def test_continuous_batches_write_what_each_prompt_does(kind, kernel, build, write, writer, texts):
    model = build("decoder", attn_implementation=kernel, **PAGED[kind])
    prompts = writer(texts)["input_ids"]
    options = GenerationConfig(max_new_tokens=8, do_sample=False, eos_token_id=-1, pad_token_id=0)
    # So few tokens at a time that prompts come one after the other, and the longest in two parts.
    room = ContinuousBatchingConfig(num_blocks=8, max_batch_tokens=16)
    answers = model.generate_batch(prompts, generation_config=options, continuous_batching_config=room)
    for prompt, answer in zip(prompts, answers.values(), strict=True):
        assert answer.generated_tokens == write(model, torch.tensor([prompt]), 8)[0, len(prompt) :].tolist()


def test_continuous_batches_refuse_distances_that_pages_do_not_keep(build):
    with pytest.raises(ValueError, match="continuous batching has a paged cache"):
        build("decoder", position_embedding_type="relative_bias").generate_batch([[5, 6]])


@pytest.mark.ecosystem(
    "transformers", "contrastive search, DoLa, group and constrained beams", member="decoder"
)
@pytest.mark.skip(reason="transformers moved them to the Hub")
def test_strategies_of_the_hub():
    """They are programs that `generate` downloads, and runs with `trust_remote_code` only."""
