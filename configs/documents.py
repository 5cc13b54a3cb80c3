"""YAML documents, read without the surprises of YAML 1.1.

`1e-3` is a number, a key given twice is an error, and a date is the text that was written.
"""

import json
import re
from typing import Any

import yaml


class DocumentLoader(yaml.SafeLoader):
    """Reads plain data only; see the module for how it differs from its base class."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key with parts, or given twice: of those, YAML would silently keep the last."""
        seen = set()
        for key_node, _ in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(problem=f"a key is no single value (line {line})")
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key!r} is given twice (line {line})"
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_NUMBER = re.compile(
    r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_SURPRISING = ("tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")

DocumentLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _SURPRISING]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
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
        return data
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ValueError(f"{getattr(error, 'problem', None) or 'not YAML'}{place}") from None
    except Exception as error:  # what YAML's own types make of `!!int x`, or of a thousand brackets
        raise ValueError(f"not plain data ({' '.join(str(error).split())})") from None
