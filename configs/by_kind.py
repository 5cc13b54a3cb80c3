"""Classes and functions by their kind, each in a module that is imported when its kind is needed.

    OBJECTIVES = ByKind(__name__, {"denoising": "denoising.DenoisingRecipe", ...})
    objective: Annotated[BaseObjectiveRecipe, OBJECTIVES]       a part of a recipe: one of these dataclasses
    OBJECTIVES["denoising"]                                      the class

A run imports what its recipe names, and nothing of the other kinds.
"""

import json
from collections.abc import Iterator, Mapping
from functools import reduce
from importlib import import_module
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from .recipe import adapter_of, recipe_data

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler


class ByKind(Mapping[str, Any]):
    """A table of classes, or of functions, in modules of one package.

    Args:
        table: The name of the module that has the table, in the same package.
        names: Kind -> module and what is in it, as in `module.Class`.
    """

    def __init__(self, table: str, names: dict[str, str]):
        self.package = table.rpartition(".")[0]
        self.names = names

    def __getitem__(self, kind: str) -> Any:
        module, _, name = self.names[kind].rpartition(".")
        return getattr(import_module(f".{module}", self.package), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, kind: object) -> bool:
        return kind in self.names  # which imports nothing

    def __len__(self) -> int:
        return len(self.names)

    def build(self, data: Any) -> Any:
        """Build the dataclass that a recipe's part names."""
        kind = data.get("kind") if isinstance(data, dict) else data
        if kind not in [*self]:
            from pydantic_core import PydanticCustomError

            about = {"kind": repr(kind), "kinds": ", ".join(self)}
            raise PydanticCustomError("kind", "kind is {kind}, but must be one of {kinds}", about)
        return adapter_of(self[kind]).validate_json(json.dumps(data), strict=True)

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> Any:
        from pydantic_core import core_schema

        written = core_schema.plain_serializer_function_ser_schema(recipe_data)
        return core_schema.no_info_plain_validator_function(self.build, serialization=written)

    def __get_pydantic_json_schema__(self, schema: Any, handler: "GetJsonSchemaHandler") -> dict[str, Any]:
        from pydantic import Field

        union = Annotated[reduce(or_, self.values()), Field(discriminator="kind")]
        return handler(adapter_of(union).core_schema)


class OptionalPart(ByKind):
    """One class alone, of a part that most recipes leave out, or set to null; the part names no kind.

        adaptation: Annotated[Any, OptionalPart(__name__, "adaptation.AdaptationRecipe")] = None

    Args:
        table: The name of the module that has the part, in the same package.
        name: Module and class.
    """

    def __init__(self, table: str, name: str):
        super().__init__(table, {"": name})

    def build(self, data: Any) -> Any:
        return None if data is None else adapter_of(self[""]).validate_json(json.dumps(data), strict=True)

    def __get_pydantic_json_schema__(self, schema: Any, handler: "GetJsonSchemaHandler") -> dict[str, Any]:
        return handler(adapter_of(self[""] | None).core_schema)
