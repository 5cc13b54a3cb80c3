"""Small models and batches, ours and stock ones, in the form that transformers' test classes ask for."""

from typing import Any

import suite
import torch

SIZE = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
"""Of every model."""

LABELS = "next_sentence_label"


class Tester:
    """A configuration, and batches for it."""

    is_training = True
    batch_size, seq_length, num_choices = 3, 7, 4
    hidden_size, num_hidden_layers, num_attention_heads = 32, 2, 4

    def __init__(self, config_class: type, **fields: Any):
        self.config_class, self.fields = config_class, fields
        self.encoder_seq_length = self.decoder_seq_length = self.key_length = self.seq_length
        self.out_features = None

    def get_config(self):
        """Build the configuration."""
        return self.config_class(**(SIZE | self.fields))

    def prepare_config_and_inputs_for_common(self):
        """Build the configuration and a batch, padded on the right."""
        config = self.get_config()
        size = (self.batch_size, self.seq_length)
        ids = suite.common.ids_tensor(size, config.vocab_size - 3) + 3
        if config.is_encoder_decoder:
            ids[:, -1] = 2  # BART reads labels of sequences from the end of the text
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if config.is_encoder_decoder:
            inputs["decoder_input_ids"] = suite.common.ids_tensor(size, config.vocab_size - 3) + 3
            inputs["decoder_attention_mask"] = torch.ones_like(ids)
        return config, inputs


class Suite(suite.ModelTesterMixin):
    """transformers' shared tests. Abstract: a test class names configuration and models."""

    config_class: type
    fields: dict[str, Any] = {}
    test_resize_embeddings = True

    def setUp(self):
        """Build what the tests take their models and batches from."""
        self.model_tester = Tester(self.config_class, **self.fields)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        if return_labels and model_class.__name__.endswith("ForPreTraining"):
            size = (self.model_tester.batch_size, self.model_tester.seq_length)
            inputs |= {"labels": torch.zeros(size).long(), LABELS: torch.zeros(size[0]).long()}
        return inputs


class GenerativeSuite(Suite, suite.GenerationTesterMixin):
    """The same for members that write. Abstract."""
