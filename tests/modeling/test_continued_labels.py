"""Labels behind the first byte of a word continue the entity that begins there."""

import torch
from torch.testing import assert_close
from transformers import pipeline

from tercet import TercetTaggerConfig, TercetTaggerForTokenClassification
from tercet.conversion.word_tokenizer import word_tokenizer
from tercet.modeling.modeling_tercet_tagger import continued
from tercet.modeling.word_bytes import read_words
from tercet.modeling.word_embedders import adopt, describe
from tercet.storage.own_model import load_ours

from ..small_taggers import save_static


def test_labels_without_an_inside_stay_as_they_are():
    scores = torch.randn(3, 2).log_softmax(-1)
    assert continued(scores, torch.tensor([True, False, True]), {0: "NOUN", 1: "B-PER"}) is scores


def test_entities_begin_at_the_first_byte_of_a_word(tmp_path):
    labels = {0: "O", 1: "B-LOC", 2: "I-LOC", 3: "B-PER"}
    source = load_ours(str(save_static(tmp_path)))
    torch.manual_seed(0)
    config = TercetTaggerConfig(
        embeddings=[describe(source.config, None)],
        hidden_size=16,
        id2label=labels,
        label2id={name: number for number, name in labels.items()},
    )
    tagger = TercetTaggerForTokenClassification(config).eval()
    adopt(tagger.model.features.parts[0], source, None)
    text = "Zoë went to 北京 ."
    batch = word_tokenizer()(text, return_tensors="pt")
    found = tagger(**batch).logits[0].exp()
    assert_close(found.sum(-1), torch.ones(len(found)))
    first = read_words(batch["input_ids"])[0].positions
    words = torch.bucketize(torch.arange(len(found)), first, right=True) - 1
    alike = found[first][words]
    behind = torch.ones(len(found), dtype=torch.bool)
    behind[first] = False
    assert_close(found[behind][:, [0, 3]], alike[behind][:, [0, 3]])
    assert_close(found[behind][:, 2], alike[behind][:, 1:3].sum(-1))
    assert found[behind][:, 1].eq(0).all()
    with torch.no_grad():
        tagger.classifier.weight.zero_()
        tagger.classifier.bias.copy_(torch.tensor([0.0, 99.0, 0.0, 0.0]))
        tagger.crf.transitions.zero_()
    tag = pipeline("token-classification", tagger, tokenizer=word_tokenizer(), aggregation_strategy="simple")
    spans = [(each["entity_group"], text[each["start"] : each["end"]].strip()) for each in tag(text)]
    assert spans == [("LOC", word) for word in text.split()]
