"""What the bake-off compares: objectives, the members that learn them, and how their models are read."""

from dataclasses import dataclass
from typing import Literal

from tercet.fewshot.member import Head

Member = Literal["encoder", "decoder", "seq2seq"]


@dataclass(frozen=True)
class Reading:
    """One way to read a pretrained model."""

    name: str
    has_lm_head: bool = True
    """Whether it gives probabilities of tokens."""
    head: Head = "auto"
    """How a decoder is read where probabilities of tokens are asked of it."""
    is_converted: bool = False
    """Whether tasks are learned by the encoder that the model is converted to."""
    sentinel: bool = False
    """Whether prompts have the form of span corruption."""


CAUSAL = Reading("causal", head="causal_lm")
MASKED = Reading("masked")
HEADLESS = Reading("states", has_lm_head=False)
BOTH = (CAUSAL, Reading("masked", head="masked_lm", is_converted=True))
SPANS, TARGET = Reading("span", sentinel=True), Reading("target")


@dataclass(frozen=True)
class Entrant:
    """An objective, and the member that learns it."""

    name: str
    member: Member
    objective: str
    """As a recipe has it."""
    readings: tuple[Reading, ...]

    @property
    def slug(self) -> str:
        """The name as part of a folder's: `mlm-30-15`."""
        kept = "".join(each if each.isalnum() else " " for each in self.name.lower())
        return "-".join(kept.split())


MLM = "kind: masked_language_modeling"

ENTRANTS = (
    Entrant("MLM 15 %", "encoder", f"{{{MLM}, mlm_probability: 0.15}}", (MASKED,)),
    Entrant("MLM 30 %", "encoder", f"{{{MLM}, mlm_probability: 0.3}}", (MASKED,)),
    Entrant(
        "MLM 30 % to 15 %",
        "encoder",
        f"{{{MLM}, mlm_probability: 0.3, final_mlm_probability: 0.15}}",
        (MASKED,),
    ),
    Entrant("whole words", "encoder", f"{{{MLM}, whole_word: true}}", (MASKED,)),
    Entrant("spans", "encoder", f"{{{MLM}, span_masking: {{}}}}", (MASKED,)),
    Entrant("MLM + NSP", "encoder", "{kind: masked_language_modeling_with_next_sentence}", (MASKED,)),
    Entrant("MLM + SOP", "encoder", "{kind: masked_language_modeling_with_sentence_order}", (MASKED,)),
    Entrant("ELECTRA", "encoder", "{kind: replaced_token_detection}", (HEADLESS,)),
    Entrant("TSDAE", "encoder", "{kind: sentence_denoising}", (HEADLESS,)),
    Entrant("CLM", "decoder", "{kind: causal_language_modeling}", (CAUSAL,)),
    Entrant("FIM", "decoder", "{kind: fill_in_the_middle}", (CAUSAL,)),
    *(
        Entrant(
            f"hybrid {name}",
            "decoder",
            f"{{kind: hybrid_language_modeling, causal_share: {share}, "
            "mlm_probability: 0.3, final_mlm_probability: 0.15}",
            BOTH,
        )
        for name, share in (("1/4", 0.25), ("1/2", 0.5))
    ),
    Entrant("span corruption", "seq2seq", "{kind: span_corruption}", (SPANS,)),
    Entrant("prefix LM", "seq2seq", "{kind: prefix_language_modeling}", (TARGET,)),
    Entrant("UL2", "seq2seq", "{kind: mixture_of_denoisers}", (SPANS,)),
    Entrant("BART", "seq2seq", "{kind: denoising}", (TARGET,)),
)
"""All objectives that learn from running text."""
