"""Reads YAML with limits on its size, depth, aliases and values.

Without limits, PyYAML uses about a kilobyte per node, follows any number of aliases, and converts numbers of any
length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

MOST_DIGITS = 40
"""Maximum characters of a number or date. The time for conversion grows with the square of the length, and no setting
is this long."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits for a file. `nodes`: maximum number of keys and values. Those that are used through an alias count at
    each use."""

    size_bytes: int
    nodes: int
    depth: int


OPERATOR = Bounds(size_bytes=16 * 2**20, nodes=1_000_000, depth=40)
"""Limits for gateway.yaml. They are wide, because its author controls the gateway anyway."""
TEAM = Bounds(size_bytes=2**18, nodes=20_000, depth=20)
"""Limits for policy files. Reading one takes at most about 20 MB of memory."""

_NUMBERS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "timestamp"))
_UNWRITABLE = re.compile("[\\0\ud800-\udfff]")
"""Matches characters that a YAML escape can produce, but that neither UTF-8 nor a database can store."""


class Loader(yaml.SafeLoader):
    """Reads YAML within the limits `bounds`. Booleans are those of YAML 1.2: a bare `off`, `no` or `on` is a string."""

    def __init__(self, text: str, bounds: Bounds) -> None:
        super().__init__(text)
        self._bounds = bounds
        self._composed = 0
        self._open: list[list[int]] = []
        """For each node that is being read: [number of nodes in it so far, depth]."""
        self._anchored: dict[int, tuple[int, int]] = {}
        """Id of a node with an anchor → (nodes, depth)."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        self._composed += 1
        self._open.append([1, 1])
        if self._composed > self._bounds.nodes or len(self._open) > self._bounds.depth:
            self._refuse(event)
        node: Any = super().compose_node(parent, index)
        nodes, depth = self._open.pop()
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self._anchored:
                raise _mistake("an alias inside its own anchor", event)
            nodes, depth = self._anchored[id(node)]
        elif event.anchor is not None:
            self._anchored[id(node)] = nodes, depth
        if self._open:
            above = self._open[-1]
            above[0], above[1] = above[0] + nodes, max(above[1], depth + 1)
            if above[0] > self._bounds.nodes or len(self._open) + depth > self._bounds.depth:
                self._refuse(event)
        return node

    def compose_scalar_node(self, anchor: Any) -> Any:
        node: Any = super().compose_scalar_node(anchor)
        if node.tag in _NUMBERS and len(node.value) > MOST_DIGITS:
            raise _mistake(f"a number of more than {MOST_DIGITS} characters; shorten it", node)
        if _UNWRITABLE.search(node.value):
            raise _mistake(
                "an escape that is no valid character (NUL, or half of a surrogate pair); write the character itself",
                node,
            )
        return node

    def _refuse(self, event: Any) -> None:
        raise _mistake(
            f"more than {self._bounds.nodes} values (each use of an alias counts), or nested deeper than "
            f"{self._bounds.depth} levels; shorten the file",
            event,
        )


def _mistake(problem: str, at: Any) -> yaml.composer.ComposerError:
    """Make the error for a file that exceeds a limit or has a mistake. `at`: the place of the problem, as a YAML
    event or node.
    """
    return yaml.composer.ComposerError(None, None, problem, at.start_mark)


Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def _construct_unique(loader: Any, node: Any) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, "a list or mapping in the place of a key", key_node.start_mark
            )
        if key_node.value in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key_node.value!r} occurs twice", key_node.start_mark
            )
        seen.add(key_node.value)
    mapping: dict[Any, Any] = yaml.SafeLoader.construct_mapping(loader, node, deep=True)
    return mapping


Loader.add_constructor("tag:yaml.org,2002:map", _construct_unique)


def read(text: str, bounds: Bounds) -> tuple[yaml.Node | None, Any]:
    """Parse `text` as YAML. Returns its tree of nodes and its content as Python values. Raises YAMLError, ValueError,
    or any other error of PyYAML."""
    loader = Loader(text, bounds)
    try:
        root: yaml.Node | None = loader.get_single_node()
        return root, {} if root is None else loader.construct_document(root)
    finally:
        loader.dispose()
