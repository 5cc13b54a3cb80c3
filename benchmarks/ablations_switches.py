"""The bases of the ablations, and what is switched on or off in them.

A base is a recipe that is strong without the switches, so that a row says what one of them brings alone. An
override may hold `HALF` and `FIFTH`: half and a fifth of the steps of the run.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Switch:
    """One change of a recipe."""

    name: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Base:
    """A recipe that is changed."""

    name: str
    recipe: str
    term: str
    """The term of the loss that judges."""
    overrides: tuple[str, ...]
    """What is changed in it for all runs."""
    switches: tuple[Switch, ...]


COMMON = (
    Switch("AdamW", ("training.optimizer={kind: adamw, learning_rate: 1.5e-3, weight_decay: 0.05}",)),
    Switch("NorMuon", ("training.optimizer.kind=normuon",)),
    Switch("QK-norm", ("model.overrides.use_qk_norm=true",)),
    Switch("gate of heads", ("model.overrides.attention_gate=headwise",)),
    Switch("gate of channels", ("model.overrides.attention_gate=elementwise",)),
    Switch(
        "squared ReLU",  # two matrices of 1,056 have the parameters of three of 704
        (
            "model.overrides.feed_forward_type=plain",
            "model.overrides.hidden_act=relu2",
            "model.overrides.intermediate_size=1056",
        ),
    ),
    Switch("GEGLU", ("model.overrides.hidden_act=gelu",)),
    Switch("zero-initialized outputs", ("model.overrides.zero_init_residual=true",)),
    Switch("z-loss", ("objective.z_loss=1.0e-4",)),
    Switch(
        "factorized embeddings",
        ("model.overrides.embedding_size=128", "model.overrides.head_transform=true"),
    ),
    Switch("moving average of weights", ("training.ema_decay=0.99",)),
    Switch(
        "warmup-stable-decay, linear last fifth",
        (
            "training.schedule={kind: warmup_stable_decay, warmup_ratio: 0.1, decay_shape: linear, "
            "decay_ratio: 0.2}",
        ),
    ),
    Switch("half the length for half the steps", ("training.stages=[{steps: HALF, sequence_length: 64}]",)),
    Switch(
        "half the step for a fifth of the steps",
        ("training.stages=[{steps: FIFTH, tokens_per_step: 2048}]",),
    ),
    Switch("sequences across documents", ("corpus.isolate_documents=false",)),
)
"""Switches of every member."""

STRONG = (
    "corpus.sequence_length=128",
    "training.tokens_per_step=4096",
    "training.optimizer={kind: muon, learning_rate: 6.0e-3}",
    "training.schedule={kind: linear, warmup_ratio: 0.1}",
)
"""What time_to_loss.py has found to be strong, in steps that docs/results.md compares."""

BASES = {
    base.name: base
    for base in (
        Base("decoder", "decoder-english", "clm", STRONG, COMMON),
        Base(
            "encoder",
            "encoder-english",
            "mlm",
            ("objective={kind: masked_language_modeling, mlm_probability: 0.3}", *STRONG),
            (
                *COMMON,
                Switch("15 % masked", ("objective.mlm_probability=0.15",)),
                Switch(
                    "30 % to 15 % masked",
                    ("objective.mlm_probability=0.3", "objective.final_mlm_probability=0.15"),
                ),
                Switch("whole words", ("objective.whole_word=true",)),
                Switch("spans", ("objective.span_masking={}",)),
            ),
        ),
        Base(
            "hybrid",
            "hybrid-english",
            "clm",
            ("training.stages=[]", "corpus.sequence_length=128", "training.tokens_per_step=8192"),
            tuple(
                Switch(f"{share} causal", (f"objective.causal_share={share}",))
                for share in (0.0625, 0.125, 0.5, 0.75, 0.9375)
            ),
        ),
    )
}
"""The bases, by name."""
