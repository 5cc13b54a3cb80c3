"""YAML documents, read without the surprises of YAML 1.1.

`1e-3` is a number, `0100` is a hundred, a key given twice is an error, and a date or a time is the text that
was written. What an anchor names is a value of its own wherever it stands: who changes one changes no other.
"""

import json
import re
from typing import Any

import yaml


class DocumentLoader(yaml.SafeLoader):
    """Reads plain data only; see the module for how it differs from its base class."""

    def __init__(self, stream: str):
        super().__init__(stream)
        self.checked: set[yaml.MappingNode] = set()
        """Mappings whose keys are known to differ: those that `<<` adds later may be theirs, and give way."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Add what `<<` names, once the mapping's own keys are checked."""
        if node not in self.checked:
            self.checked.add(node)
            self.check_keys(node)
        super().flatten_mapping(node)

    def check_keys(self, node: yaml.MappingNode) -> None:
        """Refuse a key with parts, or given twice: of those, YAML would silently keep the last."""
        seen = set()
        for key_node, _ in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(problem=f"a key is no single value (line {line})")
            is_merge = key_node.tag == MERGE
            key = key_node.value if is_merge else self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key!r} is given twice (line {line})"
                )
            seen.add(key)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Read digits as decimal, also behind a 0, where YAML 1.1 reads octal."""
        digits = node.value.replace("_", "")
        return int(digits) if digits.lstrip("+-").isdecimal() else super().construct_yaml_int(node)


DocumentLoader.add_constructor("tag:yaml.org,2002:int", DocumentLoader.construct_yaml_int)

MERGE = "tag:yaml.org,2002:merge"
_INTEGER = re.compile(r"^[-+]?(?:0b[01_]+|0x[\da-fA-F_]+|\d[\d_]*)$")
_NUMBER = re.compile(
    r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_SURPRISING = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")

DocumentLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _SURPRISING]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
DocumentLoader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
# Added after the resolver of integers, so that what has neither a point nor an exponent stays an integer.
DocumentLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(rf"^(?:{_NUMBER.pattern})$"), list("-+0123456789.")
)


def read_document(text: str) -> Any:
    """Read one YAML document into plain data.

    Raises:
        ValueError: It is not YAML, gives a key twice, or holds more than plain data; in one line.
    """
    try:
        data = yaml.load(text, DocumentLoader)
        json.dumps(data)  # neither dates nor sets nor bytes, and nothing that contains itself
        return _unshared(data)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ValueError(f"{getattr(error, 'problem', None) or 'not YAML'}{place}") from None
    except Exception as error:  # what YAML's own types make of `!!int x`, or of a thousand brackets
        raise ValueError(f"not plain data ({' '.join(str(error).split())})") from None


def _unshared(data: Any) -> Any:
    """Copy plain data, so that what an anchor names is there as often as it is named."""
    if isinstance(data, dict):
        return {key: _unshared(value) for key, value in data.items()}
    return [_unshared(value) for value in data] if isinstance(data, list) else data
