"""YAML documents, read without the surprises of YAML 1.1, and written as they will be read.

`1e-3` is a number, `0100` is a hundred, a key given twice is an error, and a date or a time is the text that
was written. What an anchor names is a value of its own wherever it stands: who changes one changes no other,
and a few lines that name each other can stand for more values than memory holds. What a document stands for
is therefore counted before it is built.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

MOST_VALUES = 100_000
"""Values and keys that a document may stand for: far more than people write, and read in seconds."""

MOST_DIGITS = 1000
"""Characters of an integer."""

PLAIN = ("str", "int", "float", "bool", "null", "seq", "map")
"""YAML's types of plain data."""


class DocumentLoader(yaml.SafeLoader):
    """Reads plain data only; see the module for how it differs from its base class."""

    def __init__(self, stream: str):
        super().__init__(stream)
        self.checked: set[yaml.MappingNode] = set()
        """Mappings whose keys are known to differ: those that `<<` adds later may be theirs, and give way."""
        self.num_values = 0
        """What the nodes read so far stand for."""
        self.sizes: dict[yaml.Node, int] = {}
        """The same for each node that is read to its end."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        """Read a node, and count what it stands for: an alias for all that its anchor names."""
        line = self.peek_event().start_mark.line + 1
        is_alias = self.check_event(yaml.AliasEvent)
        before = self.num_values
        node = super().compose_node(parent, index)
        assert node is not None
        if is_alias and node not in self.sizes:
            raise error_at(line, "a value contains itself")
        self.num_values += self.sizes[node] if is_alias else 1
        if self.num_values > MOST_VALUES:
            named = ", by way of aliases" if is_alias else ""
            raise error_at(line, f"more than {MOST_VALUES:,} values{named}: write fewer")
        self.sizes.setdefault(node, self.num_values - before)
        return node

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
                raise error_at(line, "a key is no single value")
            is_merge = key_node.tag == MERGE
            key = key_node.value if is_merge else self.construct_object(key_node, deep=True)
            written = key if isinstance(key, str) else json.dumps(key)  # as which it becomes a recipe's
            if {key, written} & seen:
                raise error_at(line, f"the key {key!r} is given twice")
            seen |= {key, written}

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Read digits as decimal, also behind a 0, where YAML 1.1 reads octal."""
        digits = node.value.replace("_", "")
        if len(digits) > MOST_DIGITS:
            raise error_at(node.start_mark.line + 1, f"a number of {len(digits):,} digits is too long")
        return int(digits) if digits.lstrip("+-").isdecimal() else super().construct_yaml_int(node)

    def construct_yaml_str(self, node: yaml.ScalarNode) -> str:
        """Read text; an escape may be half of a character, as JSON writes those beyond the first 65,536."""
        text = super().construct_yaml_str(node)
        if "\0" in text:
            raise error_at(node.start_mark.line + 1, f"{text!r} has a NUL character")
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise error_at(node.start_mark.line + 1, f"{text!r} has half of a character") from None

    def refuse(self, node: yaml.Node) -> None:
        """Refuse a type that is not plain data, such as `!!binary` or `!!python/object`."""
        name = node.tag.replace("tag:yaml.org,2002:", "!!")
        raise error_at(node.start_mark.line + 1, f"{name} is not plain data")


def error_at(line: int, problem: str) -> yaml.YAMLError:
    """Make the error that says what is wrong in a line, counted from 1."""
    return yaml.constructor.ConstructorError(problem=f"{problem} (line {line})")


_TYPES = yaml.SafeLoader.yaml_constructors
DocumentLoader.yaml_constructors = {
    tag: _TYPES[tag] for name in PLAIN if (tag := f"tag:yaml.org,2002:{name}")
}
DocumentLoader.add_constructor("tag:yaml.org,2002:int", DocumentLoader.construct_yaml_int)
DocumentLoader.add_constructor("tag:yaml.org,2002:str", DocumentLoader.construct_yaml_str)
DocumentLoader.add_constructor(None, DocumentLoader.refuse)  # pyright: ignore[reportArgumentType]

MERGE = "tag:yaml.org,2002:merge"
_INTEGER = re.compile(r"^[-+]?(?:0b[01_]+|0x[\da-fA-F_]+|\d[\d_]*)$")
_NUMBER = re.compile(
    r"[-+]?(\d[\d_]*(\.[\d_]*)?|\.\d[\d_]*)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_SURPRISING = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")

DocumentLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _SURPRISING]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class DocumentDumper(yaml.SafeDumper):
    """Writes plain data, with quotes around texts that `DocumentLoader` or YAML 1.1 would read as others."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Write text, in which a next line (U+0085) has to be an escape: as itself, it gains spaces."""
        style = '"' if "\x85" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


DocumentDumper.add_representer(str, DocumentDumper.represent_str)

for _each in (DocumentLoader, DocumentDumper):
    _each.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
    # Added after the resolver of integers, so that what has neither a point nor an exponent stays an integer.
    _each.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(rf"^(?:{_NUMBER.pattern})$"), list("-+0123456789.")
    )


def read_document(text: str) -> Any:
    """Read one YAML document into plain data.

    Raises:
        ValueError: It is not YAML, gives a key twice, holds more than plain data, or stands for more than
            `MOST_VALUES` values; in one line.
    """
    try:
        return _unshared(yaml.load(text, DocumentLoader))
    except yaml.reader.ReaderError as error:
        problem = f"the character U+{error.character:04X} cannot stand in YAML (position {error.position})"
        raise ValueError(problem) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ValueError(f"{getattr(error, 'problem', None) or 'not YAML'}{place}") from None
    except RecursionError:
        raise ValueError("values inside of values, hundreds deep: write fewer brackets or indents") from None
    except Exception as error:  # what YAML's own types make of `!!int x`
        raise ValueError(
            f"not plain data ({' '.join(str(error).split())}): write the value without a tag"
        ) from None


def write_document(data: Any) -> str:
    """Write plain data as a YAML document, of which `read_document` makes the same data."""
    return yaml.dump(data, Dumper=DocumentDumper, sort_keys=False, allow_unicode=True)


def require_no_comment(text: str) -> None:
    """Refuse a value with a comment behind it: nobody means one on a command line."""
    ends = (yaml.StreamEndToken, yaml.BlockEndToken)
    read = max(token.end_mark.index for token in yaml.scan(text) if not isinstance(token, ends))
    if left_out := text[read:].strip():
        quoted = f"""'"{text}"'"""
        raise ValueError(f"{left_out!r} would be a comment: quote the value twice, as in key={quoted}")


def _unshared(data: Any) -> Any:
    # What an anchor names is there as often as it is named.
    if isinstance(data, dict):
        return {key: _unshared(value) for key, value in data.items()}
    return [_unshared(value) for value in data] if isinstance(data, list) else data


def read_facts(file: Path) -> dict[str, Any]:
    """Read a JSON or YAML file; one that does not exist has no facts."""
    if not file.exists():
        return {}
    try:
        is_recipe = file.suffix == ".yaml"
        facts = read_document(file.read_text("utf-8")) if is_recipe else json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged ({error}): write it again, or remove it") from error
    if not isinstance(facts, dict):
        raise ValueError(f"{file} is damaged (no keys with values): write it again, or remove it")
    return facts


def texts_in(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield all texts in nested data, with the key of each; those of a list have the list's."""
    stack = [(key, value)]
    while stack:
        key, value = stack.pop()
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, dict):
            stack += value.items()
        elif isinstance(value, list):
            stack += ((key, each) for each in value)
