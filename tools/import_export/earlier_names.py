"""What transformers 5 writes by new names, in those of version 4 as well, for programs that know no others.

They take the base of 10,000 where they find no `rope_theta`, and every third layer of a ModernBERT for global
where they find no number. Version 5 reads both names. So it is with the class of a tokenizer
(`with_general_class` in `modeling/saved/model_folder.py`).
"""

from typing import Any

Facts = dict[str, Any]

ROTARY = {
    "gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
    "full_attention": {"rope_theta": "global_rope_theta"},
    "sliding_attention": {"rope_theta": "local_rope_theta"},
}
"""Type of a stock model, or of layers where these differ -> parameters whose earlier names are others."""


def with_rotary_fields(config: Facts) -> Facts:
    """Add to a stock configuration the fields by which version 4 describes rotary positions."""
    told = config.get("rope_parameters") or {}
    if "rope_theta" not in told:  # one for each type of layer
        layers = {layer: one for layer, one in told.items() if one and layer in ROTARY}
        return config | {ROTARY[layer]["rope_theta"]: one["rope_theta"] for layer, one in layers.items()}
    names = ROTARY.get(
        config["model_type"], {"rope_theta": "rope_theta", "partial_rotary_factor": "partial_rotary_factor"}
    )
    scaling = {name: value for name, value in told.items() if name not in names}
    fields = {names[name]: value for name, value in told.items() if name in names}
    return config | fields | {"rope_scaling": None if scaling == {"rope_type": "default"} else scaling}


def with_global_layers(config: Facts) -> Facts:
    """Add to a ModernBERT's configuration how many layers on the next global one is, if that is one number.

    Where it is none, version 4 reads another model.
    """
    if config["model_type"] != "modernbert":
        return config
    are_global = [kind == "full_attention" for kind in config["layer_types"]]
    for every in range(1, len(are_global) + 1):
        if are_global == [layer % every == 0 for layer in range(len(are_global))]:
            return config | {"global_attn_every_n_layers": every}
    return config
