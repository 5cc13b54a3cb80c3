"""How a model reads a text: its tokens, and where each token looks.

Shapes: T tokens, H heads.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..inspection.attention_maps import attention_maps
from ..reporting.blocks import Heatmap, Note, Result, Token, Tokens
from .ability import Ability, Field, NumberField, TextField
from .language import spelled
from .loaded_model import LoadedModel

MOST_TOKENS = 64
"""Of a text whose attention is drawn: more cannot be read."""

MAPS = ("encoder", "decoder", "decoder's attention to the encoder")
"""Of a sequence-to-sequence model."""

RECURRENT = "tercet_recurrent_seq2seq"
"""Type of the translators whose layers are recurrent."""

MAPS_LABEL = "Map (1: encoder, 2: decoder, 3: decoder to encoder)"

TEXTS = (
    "The function returns a list of strings.",
    "The animal did not cross the street because it was too tired.",
)


class ShowTokens(Ability):
    """The tokens of a text."""

    name = "tokens"
    title = "Tokens"
    action = "Show the tokens"
    about = (
        "How the tokenizer cuts your text, with the number of each token. Of a decoder, the percentage is "
        "the token's probability after those before it: the lower, the less expected."
    )

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        """Every model: it has a tokenizer."""
        return True

    @property
    def fields(self) -> Sequence[Field]:
        """The text."""
        return [TextField("text", "A text", lines=3)]

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        """Sentences, one with rare words."""
        return [[TEXTS[0]], [TEXTS[1]], ["Antidisestablishmentarianism is rarely tokenized as one word."]]

    def run(self, *texts: str, **numbers: float) -> list[Result]:
        """List the tokens of a text."""
        ids: list[int] = self.model.inputs(texts[0])["input_ids"][0].tolist()
        probabilities = self.probabilities(ids)
        tokens = [
            Token(spelled(self.model, idx), idx, probability)
            for idx, probability in zip(ids, probabilities, strict=True)
        ]
        special = set(self.model.tokenizer.all_special_ids)
        count = sum(idx not in special for idx in ids)
        unknown = self.model.tokenizer.unk_token_id
        characters = len(texts[0])
        return [
            Tokens(f"{len(ids)} tokens", tokens),
            Note(
                f"{characters:,} characters, {characters / max(count, 1):.1f} per token; "
                f"{sum(idx == unknown for idx in ids)} unknown, {len(ids) - count} special."
            ),
        ]

    def probabilities(self, ids: list[int]) -> list[float | None]:
        """Return the probability of each token after those before it, if the model is a decoder that knows.

        The first one has none where nothing opens a text.
        """
        if not (self.model.member == "decoder" and self.model.has_lm_head):
            return [None] * len(ids)
        stream = torch.tensor([self.model.opened(ids)], device=self.model.device)
        unknown: list[float | None] = [None] * (len(ids) - stream.shape[1] + 1)
        if stream.shape[1] == 1:
            return unknown
        logits = self.model.model(input_ids=stream[:, :-1]).logits[0].float()
        return unknown + logits.softmax(dim=-1).gather(1, stream[0, 1:, None])[:, 0].tolist()


class ShowAttention(Ability):
    """The attention map of a layer."""

    name = "attention"
    title = "Attention"
    action = "Show the attention"
    about = (
        "How much each token (row) draws from each token (column) in a layer. A row sums to 1. Head 0 is the "
        "mean of all heads. A sequence-to-sequence model has three maps; those of its decoder are of what it "
        "writes for your text, greedily."
    )

    @staticmethod
    def applies(model: LoadedModel) -> bool:
        """Every model with attention."""
        if model.config.model_type == RECURRENT:
            return writes(model) and model.config.attention_score != "none"
        return bool(getattr(model.config, "num_attention_heads", 0))

    @property
    def fields(self) -> Sequence[Field]:
        """The text, the layer, the head, and which of the maps."""
        config = self.model.config
        is_recurrent = config.model_type == RECURRENT  # only its decoder attends, to the encoder
        first, last = len(MAPS) if is_recurrent else 1, len(MAPS) if writes(self.model) else 1
        return [
            TextField("text", "A text", lines=3),
            NumberField("layer", "Layer", 1, 1, 1 if is_recurrent else config.num_hidden_layers),
            NumberField("head", "Head (0: mean)", 0, 0, config.num_attention_heads),
            NumberField("map", MAPS_LABEL, first, first, last),
        ]

    @property
    def examples(self) -> Sequence[Sequence[str]]:
        """Sentences."""
        return [[text] for text in TEXTS]

    def run(self, *texts: str, **numbers: float) -> list[Result]:
        """Draw the weights of a layer.

        Raises:
            ValueError: The text is too long to be drawn, the stack has no such layer or head, or the model
                keeps no weights.
        """
        layer, head, which = (int(numbers[name]) for name in ("layer", "head", "map"))
        inputs = self.inputs(texts[0])
        if (length := inputs["input_ids"].shape[1]) > MOST_TOKENS:
            raise ValueError(
                f"the text has {length} tokens, and a map shows at most {MOST_TOKENS}: shorten the text"
            )
        written = None if which == 1 else self.write(inputs)
        heads = heads_of(self.recorded(inputs, written, which), layer, type(self.model.model).__name__)
        if head > len(heads):
            raise ValueError(f"head is {head}: this stack has {len(heads)}")
        weights = heads[head - 1] if head else heads.mean(dim=0)
        of_heads = f"head {head}" if head else f"the mean of {len(heads)} heads"
        source = self.names(inputs["input_ids"])
        rows = source if written is None else self.names(written)
        place = f" of the {MAPS[which - 1]}" if self.model.member == "seq2seq" else ""
        columns = rows if which == 2 else source
        return [Heatmap(f"Layer {layer}{place}, {of_heads}", rows, columns, weights.tolist())]

    def inputs(self, text: str) -> dict[str, Tensor]:
        """Encode a text as a batch of one, with what opens it where tokens are predicted."""
        inputs = self.model.inputs(text)
        ids = self.model.opened(inputs["input_ids"][0].tolist())
        if len(ids) == inputs["input_ids"].shape[1]:
            return inputs
        self.model.require_length(len(ids))
        stream = torch.tensor([ids], device=self.model.device)
        return {"input_ids": stream, "attention_mask": torch.ones_like(stream)}

    def names(self, ids: Tensor) -> list[str]:
        """Spell the tokens of a batch of one."""
        return [spelled(self.model, idx) for idx in ids[0].tolist()]

    def write(self, inputs: dict[str, Tensor]) -> Tensor:
        """Let the model write for a text, (1, T), with the token that its decoder starts from."""
        model: Any = self.model.model
        sequences = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        longest = min(MOST_TOKENS, self.model.max_length) - 1
        return model.generate(**sequences, num_beams=1, do_sample=False, max_new_tokens=longest)

    def recorded(
        self, inputs: dict[str, Tensor], written: Tensor | None, which: int
    ) -> Sequence[Tensor] | None:
        """Return the weights of all layers of a stack, (1, H, T, T) each; `None`: it keeps none."""
        model: Any = self.model.model
        if written is None:
            stack = model.get_encoder() if self.model.member == "seq2seq" else model.base_model
            return attention_maps(stack, inputs).get("self")
        maps = attention_maps(model, inputs | {"decoder_input_ids": written})
        return maps.get("decoder" if which == 2 else "cross")


def writes(model: LoadedModel) -> bool:
    """Return whether a model writes a text for another one."""
    return model.member == "seq2seq" and model.has_lm_head and model.model.can_generate()


def heads_of(recorded: Sequence[Tensor] | None, layer: int, model: str) -> Tensor:
    """Pick the weights of a layer, (H, T, T).

    Raises:
        ValueError: There is no such layer, or the model keeps no weights.
    """
    if recorded and layer > len(recorded):
        raise ValueError(f"layer is {layer}: this stack has {len(recorded)}")
    if not recorded or recorded[layer - 1] is None:
        raise ValueError(f"{model} keeps no such attention weights: choose another map or model")
    return recorded[layer - 1][0].float()
