"""Fields of rotary positions, in transformers' form, in ours, or both.

transformers says everything in one dictionary, `rope_parameters`: type, base, numbers of the stretching, and
the part of a head that is turned; nested by types of layers where these differ. Here `rope_theta`,
`local_rope_theta`, `rope_scaling` and `partial_rotary_factor` say the same, each by itself. Whichever is
given or changed, the other follows.
"""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .layers.positions import ORIGINAL_LENGTH

DEFAULT = "default"
FIELDS = {
    "rope_theta": 10_000.0,
    "local_rope_theta": None,
    "rope_scaling": None,
    "partial_rotary_factor": 1.0,
}
"""The fields that say what `rope_parameters` does, and their defaults."""

LAYER_TYPES = ("full_attention", "sliding_attention")
"""Types of layers that may have a base each: the first `rope_theta`, the second `local_rope_theta`."""


@strict
class RotaryConfig(PreTrainedConfig):
    """What describes rotary positions. Abstract: `TercetConfig` has all other fields."""

    rope_theta: float | int = 10_000.0
    """Base of the wavelengths of rotary positions."""
    local_rope_theta: float | int | None = None
    """The same in sliding layers; `None`: as in the others."""
    rope_scaling: dict[str, Any] | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    """How these are stretched for longer sequences: a `rope_type` ("linear", "dynamic", "llama3", "yarn") and
    its numbers."""
    partial_rotary_factor: float | int = 1.0
    """Part of each head that rotary positions turn, its first channels (0.25 in GPT-NeoX)."""
    rope_parameters: dict[str, Any] | None = None
    """All of this in transformers' form; `None`: from the fields above, or no rotary positions."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if "_has_rotary_fields" not in vars(self):
            return
        if name == "rope_parameters":
            self.update_from_rope_parameters()
        elif name in FIELDS or name == "position_embedding_type":
            self.update_rope_parameters()

    def init_rotary(self) -> None:
        """Join what was given when the configuration was made.

        Raises:
            ValueError: Fields contradict `rope_parameters`, or these are given to other positions.
        """
        given = dict(self.rope_parameters or {})
        if given and self.position_embedding_type != "rotary":  # pyright: ignore[reportAttributeAccessIssue]
            raise ValueError(
                f"rope_parameters are {given}, but position_embedding_type is "
                f"{self.position_embedding_type!r}: "  # pyright: ignore[reportAttributeAccessIssue]
                "leave them out, or choose 'rotary'"
            )
        for name, value in self.parse_rope_parameters().items():
            own = getattr(self, name)
            if name == "rope_scaling" and own:
                own = self._completed(scaling_of(own))
            if own not in (FIELDS[name], value):
                raise ValueError(
                    f"{name} is {own!r}, but by rope_parameters it is {value!r}: give one of the two"
                )
        vars(self)["_has_rotary_fields"] = True
        self.update_from_rope_parameters()
        if self._is_rotary():
            self.update_rope_parameters()
            self.update_from_rope_parameters()

    def update_from_rope_parameters(self) -> None:
        """Set the fields to what `rope_parameters` say, also if these were changed in place."""
        vars(self).update(self.parse_rope_parameters())

    def update_rope_parameters(self) -> None:
        """Set `rope_parameters` to what the fields say."""
        vars(self)["rope_parameters"] = self._parameters() if self._is_rotary() else None

    def parse_rope_parameters(self) -> dict[str, Any]:
        """Return the fields that `rope_parameters` describe.

        Raises:
            ValueError: Types of layers are stretched or turned in different ways.
        """
        described = dict(self.rope_parameters or {})
        if not described:
            return {}
        nested = {key: dict(value) for key, value in described.items() if isinstance(value, dict)}
        kinds = nested or {"full_attention": described}
        if nested and (len(nested) != len(described) or not set(nested) <= set(LAYER_TYPES)):
            raise ValueError(
                f"rope_parameters have the keys {sorted(described)}: give one dictionary for all layers, or "
                f"one each for {' and '.join(LAYER_TYPES)}"
            )
        bases = {kind: self._own(one, "rope_theta") for kind, one in kinds.items()}
        parts = {kind: self._own(one, "partial_rotary_factor") for kind, one in kinds.items()}
        scalings = [self._completed(scaling_of(one)) for one in kinds.values()]
        if len(set(parts.values())) > 1 or any(each != scalings[0] for each in scalings):
            raise ValueError(
                f"rope_parameters are {described}: all types of layers must have the same scaling, and may "
                f"differ in rope_theta only"
            )
        base = next(iter(bases.values()))
        full, local = bases.get(LAYER_TYPES[0], base), bases.get(LAYER_TYPES[1])
        return {
            "rope_theta": full,
            "local_rope_theta": local,
            "rope_scaling": scalings[0],
            "partial_rotary_factor": next(iter(parts.values())),
        }

    def _own(self, described: dict[str, Any], name: str) -> Any:
        """Take a number out of a type of layer's description; where it says nothing, the field's holds."""
        given = described.pop(name, None)
        return getattr(self, name) if given is None else given

    def _completed(self, scaling: dict[str, Any] | None) -> dict[str, Any] | None:
        """Add the length of the first training where it is missing, as transformers does."""
        if scaling is None or scaling.get("rope_type") not in ("llama3", "yarn"):
            return scaling
        return scaling | {
            ORIGINAL_LENGTH: scaling.get(ORIGINAL_LENGTH, getattr(self, "max_position_embeddings", None))
        }

    def _is_rotary(self) -> bool:
        return getattr(self, "position_embedding_type", None) == "rotary"

    def _parameters(self) -> dict[str, Any]:
        common = dict(self._completed(self.rope_scaling) or {"rope_type": DEFAULT})
        common |= {"partial_rotary_factor": self.partial_rotary_factor}
        if self.local_rope_theta is None:
            return common | {"rope_theta": self.rope_theta}
        bases = (self.rope_theta, self.local_rope_theta)
        return {kind: common | {"rope_theta": base} for kind, base in zip(LAYER_TYPES, bases, strict=True)}

    # transformers would complete and check `rope_parameters` by rules of its own.

    def convert_rope_params_to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments as they are: `init_rotary` has used them."""
        return kwargs

    def standardize_rope_params(self) -> None:
        """Set the fields to what `rope_parameters` say; transformers calls this before it uses them."""
        self.update_from_rope_parameters()

    def validate_rope(self) -> None:
        """Leave the checks to `require_positions`."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but `rope_parameters`: a file says everything once, in the other fields."""
        self.update_from_rope_parameters()
        given = super().to_dict()
        return {name: given[name] for name in given if name not in ("rope_parameters", "_has_rotary_fields")}


def scaling_of(described: dict[str, Any]) -> dict[str, Any] | None:
    """Take from transformers' description what stretches wavelengths, if anything does."""
    numbers = {("rope_type" if key == "type" else key): value for key, value in described.items()}
    if numbers.get("rope_type", DEFAULT) == DEFAULT and set(numbers) <= {"rope_type", ORIGINAL_LENGTH}:
        return None
    return numbers
