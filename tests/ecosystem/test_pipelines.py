"""Auto classes and pipelines: what they say is what the model says, read off its logits by hand."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoConfig, AutoTokenizer, pipeline
from transformers.pipelines import SUPPORTED_TASKS

from ..architectures import AUTO_CLASSES
from .heads import CLASSIFIERS, STACKS, TAGGERS

LABELS = {0: "contradiction", 1: "neutral", 2: "entailment"}
NAMED = {"id2label": LABELS, "label2id": {label: label_id for label_id, label in LABELS.items()}}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def ids_of(tokenizer, *texts):
    """Tokenize one text or a pair, (1, T)."""
    return tokenizer(*texts, return_tensors="pt")["input_ids"]


@pytest.mark.ecosystem("transformers", "`AutoConfig`, `AutoTokenizer`, every `AutoModel*`")
def test_auto_classes_load_what_was_saved(member, saved, build, tokenizer, texts):
    for auto_class, models in AUTO_CLASSES.items():
        for model_class in (each for each in models if each.config_class.model_type == f"tercet_{member}"):
            model, folder = build(model_class), saved(model_class)
            loaded = auto_class.from_pretrained(folder)
            assert type(loaded) is model_class
            assert AutoConfig.from_pretrained(folder).to_dict() == loaded.config.to_dict()
            assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert AutoTokenizer.from_pretrained(saved(member))(texts).data == tokenizer(texts).data


@pytest.mark.ecosystem("transformers", '`pipeline("fill-mask")`', member="encoder")
def test_masks_are_filled_with_what_is_likeliest(saved, build, tokenizer):
    fill = pipeline("fill-mask", model=str(saved("encoder")), top_k=5)
    texts = ["the quick [MASK] fox", "she [MASK] a white bird in the cold night ."]
    for text, guesses in zip(texts, fill(texts, batch_size=2), strict=True):
        ids = ids_of(tokenizer, text)
        place = (ids[0] == tokenizer.mask_token_id).nonzero().item()
        expected = build("encoder")(ids).logits[0, place].softmax(-1).topk(5)
        assert [guess["token"] for guess in guesses] == expected.indices.tolist()
        assert_close(torch.tensor([guess["score"] for guess in guesses]), expected.values, **CLOSE)


@pytest.mark.ecosystem("transformers", '`pipeline("text-generation")`', member="decoder")
def test_texts_of_a_padded_batch_go_on_as_each_alone(build, writer, texts):
    model = build("decoder", eos_token_id=None)
    write = pipeline("text-generation", model=model, tokenizer=writer)
    options = {"max_new_tokens": 6, "do_sample": False, "return_tensors": True}
    for text, answers in zip(texts, write(texts, batch_size=4, **options), strict=True):
        ids = ids_of(writer, text)
        for _ in range(6):
            ids = torch.cat((ids, model(ids).logits[:, -1:].argmax(-1)), dim=1)
        assert answers[0]["generated_token_ids"][-6:] == ids[0, -6:].tolist()


@pytest.mark.ecosystem("transformers", '`pipeline("text-classification")`')
def test_texts_get_the_labels_of_their_logits(member, saved, build, tokenizer, texts):
    classify = pipeline("text-classification", model=str(saved(CLASSIFIERS[member], **NAMED)))
    model = build(CLASSIFIERS[member], **NAMED)
    for text, answers in zip(texts, classify(texts, batch_size=4, top_k=None), strict=True):
        expected = model(ids_of(tokenizer, text)).logits[0].softmax(-1).sort(descending=True)
        assert [answer["label"] for answer in answers] == [LABELS[i] for i in expected.indices.tolist()]
        assert_close(torch.tensor([answer["score"] for answer in answers]), expected.values, **CLOSE)


@pytest.mark.ecosystem("transformers", '`pipeline("token-classification")`')
def test_words_get_the_labels_of_their_logits(member, saved, build, tokenizer, texts):
    tag = pipeline("token-classification", model=str(saved(TAGGERS[member], **NAMED)))
    model = build(TAGGERS[member], **NAMED)
    for text, words in zip(texts, tag(texts, batch_size=4), strict=True):
        scores = model(ids_of(tokenizer, text)).logits[0, 1:-1].softmax(-1).max(-1)
        assert [word["entity"] for word in words] == [LABELS[i] for i in scores.indices.tolist()]
        assert_close(torch.tensor([float(word["score"]) for word in words]), scores.values, **CLOSE)


@pytest.mark.ecosystem("transformers", '`pipeline("feature-extraction")`')
@pytest.mark.parametrize("member", STACKS)
def test_features_are_the_last_states(member, saved, build, tokenizer, texts):
    extract = pipeline("feature-extraction", model=str(saved(STACKS[member])), return_tensors=True)
    for text, states in zip(texts, extract(texts), strict=True):
        assert_close(states, build(STACKS[member])(ids_of(tokenizer, text)).last_hidden_state, **CLOSE)


@pytest.mark.ecosystem("transformers", '`pipeline("zero-shot-classification")`')
def test_candidates_are_ranked_by_entailment(member, saved, build, tokenizer, pair_tokenizer, texts):
    tokenizer = pair_tokenizer if member == "encoder" else tokenizer
    folder = saved(CLASSIFIERS[member], tokenizer, **NAMED)
    ask = pipeline("zero-shot-classification", model=str(folder))
    candidates, hypothesis = ["snow", "rain", "light"], "this is {} ."
    answer: Any = ask(texts[2], candidates, hypothesis_template=hypothesis)
    model = build(CLASSIFIERS[member], **NAMED)
    pairs = [
        tokenizer(texts[2], hypothesis.format(candidate), return_tensors="pt") for candidate in candidates
    ]
    logits = [model(**pair) for pair in pairs]
    scores = torch.stack([each.logits[0, 2] for each in logits]).softmax(-1)
    found = dict(zip(answer["labels"], answer["scores"], strict=True))
    assert_close(torch.tensor([found[candidate] for candidate in candidates]), scores, **CLOSE)


@pytest.mark.ecosystem("transformers", '`pipeline("decision")`', member="decoder")
@pytest.mark.skipif("decision" not in SUPPORTED_TASKS, reason="there is no such pipeline yet")
def test_decisions_are_weighed_by_their_labels_logits(build, writer):
    from transformers.decision import DecisionConfig

    model = build("decoder")
    asked = "{{ state }} {{ question.instructions }} :"
    config = DecisionConfig(chat_template=asked, labels={"noul": ["Yes", "No"]})
    decide = pipeline("decision", model=model, tokenizer=writer, decision_config=config)
    question = {"type": "noul", "instructions": "is it cold ?"}
    answers: Any = decide({"state": "snow and wind", "questions": {"cold": question}})
    logits = model(ids_of(writer, "snow and wind is it cold ? :")).logits[0, -1]
    scores = logits[torch.tensor(writer.convert_tokens_to_ids(["Yes", "No"]))].softmax(-1)
    assert answers["cold"]["noul"] == pytest.approx(scores[0].item(), rel=1e-4)
