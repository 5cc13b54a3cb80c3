"""Rotary positions, described in transformers' form: one dictionary, `rope_parameters`, says everything.

transformers fills in and checks such dictionaries, too. Its checks warn where ours refuse, and it takes some
by the names of version 4, which would say the same twice.
"""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

LAYER_TYPES = ("full_attention", "sliding_attention")
"""Types of layers that may have wavelengths each. All others have those of the first."""

ORIGINAL_LENGTH = "original_max_position_embeddings"
"""Length of the sequences of the first training: it may be stated with any type, used or not."""

OF_EVERY_TYPE = ("rope_theta", "partial_rotary_factor")
"""Numbers that each `rope_type` has."""

ROPE_NUMBERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "dynamic": (("factor",), ()),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor"), ()),
    "yarn": (
        ("factor",),
        ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    ),
}
"""By `rope_type`, the numbers that transformers' function of that name needs, and those that it may have.

linear    all wavelengths grow alike (Chen et al., 2023, section 2.3)
dynamic   the base grows with the longest sequence of a batch (Peng et al., 2023, section 3.3)
llama3    long wavelengths grow, and short ones, which tell neighbours apart, stay (Llama 3.1, in its code)
yarn      the same by channels, and attention is sharpened (Peng et al., 2023, section 3.4)
"""


@strict
class RotaryConfig(PreTrainedConfig):
    """What describes rotary positions. Abstract: `TercetConfig` has all other fields."""

    rope_parameters: dict[str, Any] | None = None
    """Rotary positions, as transformers describes them: the base of the wavelengths, `rope_theta` (10,000);
    the part of each head that is turned, its first channels, `partial_rotary_factor` (1.0; 0.25 in GPT-NeoX);
    how wavelengths are stretched for longer sequences, a `rope_type` ("default", "linear", "dynamic",
    "llama3", "yarn") and its numbers. Or this for "full_attention" and for "sliding_attention"."""

    earlier_names = {
        "rope_scaling": "rope_parameters",
        "rope_theta": "rope_parameters.rope_theta",
        "partial_rotary_factor": "rope_parameters.partial_rotary_factor",
    }
    """Fields of transformers 4, and where the same is said now."""

    if TYPE_CHECKING:
        head_dim: int | None
        max_position_embeddings: int
        position_embedding_type: str

    def __post_init__(self, **kwargs: Any):
        for name in self.earlier_names:
            if name in kwargs:
                meant = kwargs[name] if name == "rope_scaling" else {name: kwargs[name]}
                raise ValueError(f"{name} is {kwargs[name]!r}: give it as rope_parameters={meant!r}")
        super().__post_init__(**kwargs)

    @property
    def rotations(self) -> dict[str, dict[str, Any]]:
        """The dictionaries of `rope_parameters` by type of layer: full attention has one for all."""
        return rotations_of(self.rope_parameters)

    @property
    def has_dynamic_rotations(self) -> bool:
        """Whether wavelengths grow with a text that is longer than `max_position_embeddings`."""
        return any(each["rope_type"] == "dynamic" for each in self.rotations.values())

    def rotation_of(self, layer_type: str) -> dict[str, Any]:
        """Return what describes the positions of a type of layer; nothing if they are not rotary."""
        rotations = self.rotations
        return rotations.get(layer_type, rotations.get(LAYER_TYPES[0], {}))

    # transformers calls the methods below.

    def convert_rope_params_to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Fill in what was left out when the configuration was made; return the other arguments."""
        self.rope_parameters = copy.deepcopy(self.rope_parameters)
        self.standardize_rope_params()
        return kwargs

    def standardize_rope_params(self) -> None:
        """Fill in what `rope_parameters` leave out, which may have been changed in place."""
        if self.position_embedding_type != "rotary":
            return
        self.rope_parameters = self.rope_parameters or {}
        for described in self.rotations.values():
            described.setdefault("rope_type", described.pop("type", "default"))
            described.setdefault("rope_theta", self.default_theta)
            described.setdefault("partial_rotary_factor", 1.0)
            if described["rope_type"] in ("llama3", "yarn"):
                described.setdefault(ORIGINAL_LENGTH, self.max_position_embeddings)

    def validate_rope(self) -> None:
        """Refuse what rotary positions cannot be."""
        described = self.rope_parameters or {}
        if self.position_embedding_type != "rotary":
            if described:
                raise ValueError(
                    f"rope_parameters are {described}, but position_embedding_type is "
                    f"{self.position_embedding_type!r}: leave them out, or choose 'rotary'"
                )
            return
        nested = is_nested(described)
        if nested and not {*described} == {*self.rotations} == {*LAYER_TYPES}:
            raise ValueError(
                f"rope_parameters are {described}: give one dictionary for all layers, or "
                f"one each for {' and '.join(LAYER_TYPES)}"
            )
        for kind, each in self.rotations.items():
            require_rotation(f"rope_parameters.{kind}" if nested else "rope_parameters", each, self.head_dim)


def is_nested(described: Mapping[str, Any]) -> bool:
    """Return whether `rope_parameters` have a dictionary for types of layers."""
    return any(isinstance(each, dict) for each in described.values())


def rotations_of(described: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the dictionaries of `rope_parameters` by type of layer: full attention has one for all."""
    if described is None:
        return {}
    if not is_nested(described):
        return {LAYER_TYPES[0]: described}
    return {kind: each for kind, each in described.items() if isinstance(each, dict)}


def require_rotation(place: str, described: Mapping[str, Any], head_dim: int | None) -> None:
    """Raise a `ValueError` unless a dictionary describes rotary positions of heads of a width."""
    name = str(described.get("rope_type"))
    if name not in ROPE_NUMBERS:
        raise ValueError(f"{place}.rope_type is {name!r}: choose one of {', '.join(ROPE_NUMBERS)}")
    required, optional = ROPE_NUMBERS[name]
    numbers = {key: value for key, value in described.items() if key != "rope_type"}
    own = {*numbers} - {*OF_EVERY_TYPE, ORIGINAL_LENGTH}
    if not {*required} <= own <= {*required, *optional}:
        raise ValueError(
            f"{place} of rope_type {name!r} has {sorted(own)}: "
            f"give exactly {[*required] or 'nothing'} beside {' and '.join(OF_EVERY_TYPE)}"
            + (f", and any of {sorted(optional)}" if optional else "")
            + f", or choose another rope_type ({', '.join(ROPE_NUMBERS)})"
        )
    for key, value in numbers.items():
        if value is None and key in optional:
            continue
        if key == "truncate":
            if not isinstance(value, bool):
                raise ValueError(f"{place}.{key} is {value!r}: choose true or false")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"{place}.{key} is {value!r}: choose a number above 0")
        elif key == "factor" and value < 1:
            raise ValueError(f"{place}.factor is {value!r}, which shortens wavelengths: choose 1 or more")
        elif key == ORIGINAL_LENGTH and not isinstance(value, int):
            raise ValueError(f"{place}.{key} is {value!r}: choose a whole number of tokens")
    for low, high, defaults in (
        ("low_freq_factor", "high_freq_factor", (0, 1)),
        ("beta_slow", "beta_fast", (1, 32)),
    ):
        least, most = (
            numbers.get(key) or default for key, default in zip((low, high), defaults, strict=True)
        )
        if least >= most:
            raise ValueError(f"{place} has {low} {least} and {high} {most}: choose a {low} below the {high}")
    part = described["partial_rotary_factor"]
    if head_dim is not None and (turned := int(head_dim * part)) not in range(2, head_dim + 1, 2):
        raise ValueError(
            f"head_dim ({head_dim}) * partial_rotary_factor ({part}) is {turned}, but rotary positions turn "
            "pairs of a head's channels: choose an even head size and a factor of at most 1, or another "
            "position_embedding_type"
        )


def join_overrides(fields: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides of a configuration's fields, with what they leave as it is of `rope_parameters`.

    Other positions than rotary ones leave nothing of them.
    """
    own, given = fields.get("rope_parameters"), overrides.get("rope_parameters")
    if own and given:
        return {**overrides, "rope_parameters": join_rotations(own, given)}
    if own and overrides.get("position_embedding_type", "rotary") != "rotary":
        return {"rope_parameters": None, **overrides}
    return {**overrides}


def join_rotations(own: dict[str, Any], given: Any) -> Any:
    """Override keys of `rope_parameters`, those of all layers in each type; a `rope_type` has new numbers."""
    if not isinstance(given, dict):  # which a configuration refuses
        return given
    kinds = {kind: None for each in (own, given) if is_nested(each) for kind in each}
    if kinds:
        return {kind: join_rotations(part_of(own, kind), part_of(given, kind)) for kind in kinds}
    kept = OF_EVERY_TYPE if "rope_type" in given else own
    return {key: own[key] for key in kept if key in own} | given


def part_of(described: dict[str, Any], kind: str) -> Any:
    """Return what `rope_parameters` say of a type of layer."""
    return described.get(kind, {}) if is_nested(described) else described
