"""Keys of gateway.yaml and policy files that have a better name now: both are read until `DROPPED_IN`.

The tree of the file is rewritten to the old names before it is validated, so that an unchanged file and its translation
are the same settings, with the same fingerprint. Complaints show a key as the file writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import yaml

DROPPED_IN: Final = "1.0"
"""The version that reads new names only."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """`path`: the mapping that has the key; `*` is any key or item of a list."""

    path: tuple[str, ...]
    old: str
    new: str


class OldName(NamedTuple):
    """A key of a file that has a better name now."""

    line: int
    old: str
    new: str


class WrongName(ValueError):
    """A file has an old name and the new one, or a value that only the old name takes."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(message)


KEYS: Mapping[str, tuple[Renamed, ...]] = {
    "Policy": (
        Renamed((), "share", "rollout"),
        Renamed((), "trials", "learning"),
        Renamed(("budget",), "window", "period"),
        Renamed(("budget", "*"), "window", "period"),
        Renamed(("models", "*"), "reference", "baseline"),
    ),
    "GatewayConfig": (
        Renamed((), "trials", "learning"),
        Renamed(("backends", "*"), "window_tokens", "context_window"),
        Renamed(("backends", "*"), "concurrent", "max_parallel_requests"),
        Renamed(("backends", "*"), "queue", "max_pending_requests"),
        Renamed(("backends", "*"), "tier", "strength"),
        Renamed(("requests",), "stall", "client_write_timeout"),
        Renamed(("requests",), "drain", "shutdown.grace_period"),
        Renamed(("requests",), "drain_delay", "shutdown.drain_delay"),
        Renamed(("routing",), "artefact", "plan_file"),
        Renamed(("organisations", "*", "budget"), "window", "period"),
        Renamed(("organisations", "*", "budget", "*"), "window", "period"),
    ),
}
"""Of each file, by the name of its model."""
BUDGETS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "Policy": (("budget",), ("budget", "*")),
    "GatewayConfig": (("organisations", "*", "budget"), ("organisations", "*", "budget", "*")),
}
_SHUTDOWN = {"grace_period": "drain", "drain_delay": "drain_delay"}
"""Keys of `shutdown`, and what `requests` calls them."""
_STRENGTHS = ("small", "large")
_WRITTEN = "written"
"""Attribute of a node that was rewritten: what the file says."""


def written(key: yaml.Node) -> str:
    """The name that the file has for a key."""
    return str(getattr(key, _WRITTEN, key.value))


def _rewrite(key: yaml.Node, name: str) -> None:
    """Give a key another name, and remember the one that it has in the file."""
    setattr(key, _WRITTEN, written(key))
    key.value = name


def translate(root: yaml.Node | None, model: str) -> list[OldName]:
    """Rewrite the file's tree to the names that `model` has, and tell which of them have better ones now.

    Raises WrongName.
    """
    found: list[OldName] = []
    for each in KEYS.get(model, ()):
        for mapping in _mappings(root, each.path):
            if each.new == "strength":
                _strength(mapping, found)
            elif "." not in each.new:
                _rename(mapping, each, found)
    for path in BUDGETS.get(model, ()):
        for mapping in _mappings(root, path):
            _on_exhausted(mapping, found)
    if model == "GatewayConfig" and isinstance(root, yaml.MappingNode):
        _shutdown(root, found)
    return sorted(set(found))


def _rename(mapping: yaml.MappingNode, each: Renamed, found: list[OldName]) -> None:
    old, new = _key(mapping, each.old), _key(mapping, each.new)
    if new is None:
        if old is not None and not hasattr(old, _WRITTEN):
            found.append(OldName(_line(old), each.old, each.new))
        return
    if old is not None:
        raise WrongName(_line(new), f"{each.new}: stands beside {each.old}, its old name; remove {each.old}")
    _rewrite(new, each.old)


def _strength(mapping: yaml.MappingNode, found: list[OldName]) -> None:
    """`strength` and `location` are what `tier` was: a hosted backend's tier is `hosted`, whatever its strength."""
    old, new = _key(mapping, "tier"), _key(mapping, "strength")
    if new is None:
        if old is not None and not hasattr(old, _WRITTEN):
            better = "location: hosted" if _value(mapping, "tier") == "hosted" else "strength"
            found.append(OldName(_line(old), "tier", better))
        return
    if old is not None:
        raise WrongName(_line(new), "strength: stands beside tier, its old name; remove tier")
    strength = _value(mapping, "strength")
    if strength not in _STRENGTHS:
        raise WrongName(_line(new), f"strength: must be {' or '.join(_STRENGTHS)}; where it runs is `location`")
    _rewrite(new, "tier")
    if _value(mapping, "location") == "hosted":
        place = next(number for number, (key, _) in enumerate(mapping.value) if key is new)
        mapping.value[place] = new, _scalar("hosted", new)


def _on_exhausted(mapping: yaml.MappingNode, found: list[OldName]) -> None:
    """`on_exhausted: warn` is `hard: false`, and `free_only` is `downgrade`."""
    key, hard = _key(mapping, "on_exhausted"), _key(mapping, "hard")
    if hard is not None and not hasattr(hard, _WRITTEN) and _value(mapping, "hard") == "false":
        found.append(OldName(_line(hard), "hard: false", "on_exhausted: warn"))
    if key is None:
        return
    place = next(number for number, (each, _) in enumerate(mapping.value) if each is key)
    match _value(mapping, "on_exhausted"):
        case "downgrade" if not hasattr(mapping.value[place][1], _WRITTEN):
            found.append(OldName(_line(key), "on_exhausted: downgrade", "on_exhausted: free_only"))
        case "free_only":
            _rewrite(mapping.value[place][1], "downgrade")
        case "warn":
            if hard is not None:
                raise WrongName(_line(key), "on_exhausted: warn stands beside hard, its old form; remove hard")
            _rewrite(key, "hard")
            mapping.value[place] = key, _scalar("false", key, "tag:yaml.org,2002:bool")


def _shutdown(root: yaml.MappingNode, found: list[OldName]) -> None:
    """The section `shutdown` has what `requests` said of the end of a process."""
    section, requests = _entry(root, "shutdown"), _entry(root, "requests")
    if section is None:
        found += [
            OldName(_line(key), f"requests.{old}", f"shutdown.{new}")
            for new, old in _SHUTDOWN.items()
            if requests is not None and (key := _key(requests[1], old)) is not None and not hasattr(key, _WRITTEN)
        ]
        return
    if not isinstance(section[1], yaml.MappingNode):
        raise WrongName(_line(section[0]), f"shutdown: must be a mapping with {' and '.join(_SHUTDOWN)}")
    for key, _ in section[1].value:
        new, old = written(key), _SHUTDOWN.get(key.value)
        if old is None:
            raise WrongName(_line(key), f"shutdown.{new}: unknown key; there are {' and '.join(_SHUTDOWN)}")
        if requests is not None and _key(requests[1], old) is not None:
            raise WrongName(_line(key), f"shutdown.{new}: stands beside requests.{old}; remove requests.{old}")
        _rewrite(key, old)
    if requests is None:
        _rewrite(section[0], "requests")
        return
    root.value = [(key, value) for key, value in root.value if key is not section[0]]
    if isinstance(requests[1], yaml.MappingNode):
        requests[1].value += section[1].value


def _mappings(node: yaml.Node | None, path: tuple[str, ...]) -> Iterator[yaml.MappingNode]:
    """All mappings at `path`, those that are merged in (`<<`) included."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "<<":
                for merged in value.value if isinstance(value, yaml.SequenceNode) else (value,):
                    yield from _mappings(merged, path)
        if not path:
            yield node
            return
        for key, value in node.value:
            if path[0] in ("*", key.value) and key.value != "<<":
                yield from _mappings(value, path[1:])
    elif isinstance(node, yaml.SequenceNode) and path[:1] == ("*",):
        for item in node.value:
            yield from _mappings(item, path[1:])


def _entry(mapping: yaml.Node, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    if not isinstance(mapping, yaml.MappingNode):
        return None
    return next(((key, value) for key, value in mapping.value if key.value == name), None)


def _key(mapping: yaml.Node, name: str) -> yaml.Node | None:
    entry = _entry(mapping, name)
    return None if entry is None else entry[0]


def _value(mapping: yaml.Node, name: str) -> str:
    entry = _entry(mapping, name)
    return str(entry[1].value) if entry is not None and isinstance(entry[1], yaml.ScalarNode) else ""


def _scalar(value: str, at: yaml.Node, tag: str = "tag:yaml.org,2002:str") -> yaml.ScalarNode:
    return yaml.ScalarNode(tag, value, at.start_mark, at.end_mark)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
