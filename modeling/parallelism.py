"""How a stack of blocks is split among devices, in transformers' terms: a style for each of its modules.

With tensor parallelism every device computes with some of the heads, and with a part of the feed-forward
network's inner width. It holds columns of a sub-layer's first linear layers and rows of the last one, and a
sum brings the results together (Shoeybi et al., 2019, section 3). Token vectors and the LM head are
split by vocabulary entries. With FSDP every device holds a part of each weight, and gathers those of a block
when it comes to it.
"""

from transformers import PreTrainedConfig

from .attention.scores import SCORES

OWN_HEADS = {"q_proj": "colwise", "k_proj": "colwise", "v_proj": "colwise", "o_proj": "rowwise"}
"""Each device attends with its own heads."""

ALL_HEADS = {
    "q_proj": "colwise_gather_output",
    "k_proj": "colwise_gather_output",
    "v_proj": "colwise_gather_output",
    "o_proj": "rowwise_split_input",
}
"""Each device computes a part of the projections, and attends with all heads."""

OWN_HEAD_NORMS = dict.fromkeys(("q_norm", "k_norm"), "replicated_with_grad_allreduce")
"""Each device normalizes its own heads by the same weights, whose gradients are those of all heads."""

FEED_FORWARD_PLANS = {
    "plain": {"up_proj": "colwise", "down_proj": "rowwise"},
    "gated": {"gate_proj": "colwise", "up_proj": "colwise", "down_proj": "rowwise"},
}
"""Each device computes a part of the inner width, by `feed_forward_type`."""

BLOCK_BY_BLOCK = {"layers.*": "free_full_weight"}
"""What FSDP gathers together, and frees after use. The rest stays gathered, because the loss reads the weight
of the LM head, and so that of the token vectors it may be tied to, without calling the head."""


def plan_of_stack(config: PreTrainedConfig, *, has_cross_attention: bool = False) -> dict[str, str]:
    """Say how the linear layers of a stack, described by a `TercetConfig`, are split among devices."""
    attention = attention_plan(config)
    sublayers = {"self_attention": attention, "feed_forward": FEED_FORWARD_PLANS[config.feed_forward_type]}
    if has_cross_attention:
        sublayers["cross_attention"] = attention
    return {"embeddings.embed_tokens": "embedding_rowwise"} | {
        f"layers.*.{sublayer}.{module}": style
        for sublayer, styles in sublayers.items()
        for module, style in styles.items()
    }


def attention_plan(config: PreTrainedConfig) -> dict[str, str]:
    """Say how attention is split: by heads, unless a module has the bias or the parameters of all scores.

    Gates are split as queries are, whose heads they belong to.
    """
    norms = OWN_HEAD_NORMS if config.use_qk_norm else {}
    scores_of_all = {name for name, score in SCORES.items() if score.has_parameters}
    has_one_module = config.has_score_bias or config.attention_score in scores_of_all
    plan = ALL_HEADS if has_one_module else OWN_HEADS | norms
    return plan if config.attention_gate == "none" else plan | {"gate.g_proj": plan["q_proj"]}


def with_prefix(prefix: str, plan: dict[str, str]) -> dict[str, str]:
    """Name what a plan names for the model that holds the stack as `prefix`."""
    return {f"{prefix}.{name}": style for name, style in plan.items()}
