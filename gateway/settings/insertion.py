"""Adds an item to a list in a YAML file. The rest of the file does not change: comments, order and spelling stay."""

from __future__ import annotations

from collections.abc import Sequence

import yaml


def with_items(text: str, key: str, items: Sequence[str], flow: Sequence[str]) -> str:
    """Add items to the end of the list at the top-level `key` of `text`. If `text` does not have this key, it is added.

    `items`: each item as lines in block style without indentation; the first line begins with `- `. `flow`: each item
    in flow style, which is used if the list is written as `[…]`. Raises ValueError if the file cannot be changed.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None:
        return _appended(text, key, items, newline)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise ValueError("the file is not written in block style (one `key: value` per line)")
    node = next((value for name, value in root.value if name.value == key), None)
    if node is None:
        return _appended(text, key, items, newline)
    if not isinstance(node, yaml.SequenceNode):
        raise ValueError(f"`{key}` is not a list")
    if node.flow_style:
        return _in_brackets(text, node, flow)
    lines = text.splitlines(keepends=True)
    last = _last_line(node)
    if not lines[last].endswith("\n"):
        lines[last] += newline
    lines[last + 1 : last + 1] = _indented(items, node.start_mark.column, newline)
    return "".join(lines)


def _appended(text: str, key: str, items: Sequence[str], newline: str) -> str:
    ending = "" if not text or text.endswith("\n") else newline
    return "".join([text, ending, f"{key}:{newline}", *_indented(items, 2, newline)])


def _indented(items: Sequence[str], indent: int, newline: str) -> list[str]:
    return [f"{' ' * indent}{line}{newline}" for item in items for line in item.splitlines()]


def _in_brackets(text: str, node: yaml.SequenceNode, flow: Sequence[str]) -> str:
    added = ", ".join(flow)
    if node.value:
        at = node.value[-1].end_mark.index
        return f"{text[:at]}, {added}{text[at:]}"
    at = node.start_mark.index + 1
    return f"{text[:at]}{added}{text[at:]}"


def _last_line(node: yaml.Node) -> int:
    """The index of the last line of a node. PyYAML's own end of a block is after the comments that follow it."""
    children: list[yaml.Node] = []
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        children = [part for child in node.value for part in (child if isinstance(child, tuple) else (child,))]
    if children:
        return max(map(_last_line, children))
    return int(node.end_mark.line) - (node.end_mark.column == 0 and node.end_mark.line > node.start_mark.line)
