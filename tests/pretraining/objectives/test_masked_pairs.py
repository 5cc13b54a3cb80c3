"""The objective of two terms: masked tokens, and a judgement of pairs."""

import torch

from tercet.pretraining.objectives.masked_language_modeling import MaskedLanguageModeling
from tercet.pretraining.objectives.masked_pairs import MaskedLanguageModelingWithPairs
from tercet.pretraining.objectives.masking import Corruption, DynamicMasking
from tercet.pretraining.objectives.sentence_pairs import NextSentencePairs

from ...corpora import make_corpus
from .test_sentence_pairs import random_documents


class TwoHeads(torch.nn.Module):
    """Answers positions with the logits of what they read, and pairs with the logits of their number."""

    def forward(self, input_ids, logits_to_keep, **inputs):
        assert not {"labels", "next_sentence_label"} & inputs.keys()
        generator = torch.Generator().manual_seed(0)
        table, pairs = torch.randn(60, 60, generator=generator), torch.randn(99, 2, generator=generator)
        num_pairs = len(inputs["cu_seq_lens_q"]) - 1
        self.answers = {
            "prediction_logits": table[input_ids[0, logits_to_keep]][None],
            "seq_relationship_logits": pairs[:num_pairs],
        }
        return type("Output", (), self.answers)


def test_objective_has_two_terms(pair_tokenizer):
    corpus = make_corpus(random_documents(10), tokens=7)
    pairs = NextSentencePairs(corpus, pair_tokenizer, 64, seed=0).epoch(0)
    objective = MaskedLanguageModelingWithPairs(
        MaskedLanguageModeling(DynamicMasking(Corruption(pair_tokenizer))), "nsp"
    )
    batch = objective.collate([pairs[i] for i in range(8)], 0)
    assert batch["next_sentence_label"].tolist() == pairs.labels[:8].tolist()
    assert batch["token_type_ids"].shape == batch["input_ids"].shape
    targets = objective.targets(batch)
    assert targets["nsp"] == 8
    assert targets["mlm"] == (batch["labels"] != -100).sum()
    model = TwoHeads()
    scores = objective.scores(model, batch)
    answered = model.answers["seq_relationship_logits"]
    torch.testing.assert_close(
        scores["nsp"]["loss"],
        torch.nn.functional.cross_entropy(answered, batch["next_sentence_label"], reduction="sum"),
    )
    assert scores["nsp"]["accuracy"] == (answered.argmax(-1) == batch["next_sentence_label"]).sum()
    assert scores.keys() == objective.weights.keys() == targets.keys()
