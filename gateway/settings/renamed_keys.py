"""Keys of gateway.yaml and policies that have a better name now: the old and the new one are both accepted.

The models keep the old name of most keys, because fingerprints of policies, which cached answers depend on, are made
from the models' field names. A file is therefore brought to the models' names before it is validated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

DROPPED_IN = "1.0"
"""The version that accepts the old names no longer."""

KeyPath = tuple[str | int, ...]
"""Keys and list positions that lead to a value, from the file's top."""


@dataclass(frozen=True, slots=True)
class RenamedKey:
    """A key whose meaning and values stay the same.

    `section`: the mapping that holds it, by the models' names: `a.b`; `*` for each entry of a mapping; `[]` for each
    item of a list, or for the single mapping that may stand in the list's place.
    """

    section: str
    old: str
    new: str
    dropped_in: str = DROPPED_IN


@dataclass(frozen=True, slots=True)
class MovedKey:
    """A key that stands in another section of the file's top level now; the models have it there."""

    section: str
    old: str
    new_section: str
    new: str
    dropped_in: str = DROPPED_IN


Renaming = RenamedKey | MovedKey

GATEWAY: tuple[Renaming, ...] = (
    RenamedKey("", "trials", "learning"),
    RenamedKey("trials", "window", "period"),
    RenamedKey("backends.[]", "window_tokens", "context_window"),
    RenamedKey("backends.[]", "concurrent", "max_parallel_requests"),
    RenamedKey("backends.[]", "queue", "max_pending_requests"),
    RenamedKey("local_model", "window_tokens", "context_window"),
    RenamedKey("organisations.*.budget.[]", "window", "period"),
    RenamedKey("requests", "stall", "client_write_timeout"),
    MovedKey("requests", "drain_delay", "shutdown", "drain_delay"),
    MovedKey("requests", "drain", "shutdown", "grace_period"),
    RenamedKey("routing", "artefact", "plan_file"),
)
"""Of gateway.yaml. A section stands before the keys in it."""

POLICY: tuple[Renaming, ...] = (
    RenamedKey("", "share", "rollout"),
    RenamedKey("", "trials", "learning"),
    RenamedKey("budget.[]", "window", "period"),
    RenamedKey("models.*", "reference", "baseline"),
)
"""Of policies/TEAM.yaml."""

_TABLES: Mapping[str, Sequence[Renaming]] = {"GatewayConfig": GATEWAY, "Policy": POLICY}


class OldName(NamedTuple):
    """An old name that a file uses."""

    key: str
    """With its sections, as the file writes it; empty in the line that counts the rest."""
    line: str
    """File, line, key and what to write instead."""


def renamings(model: type) -> Sequence[Renaming]:
    """Those of the file that `model` describes."""
    return _TABLES.get(model.__name__, ())


@dataclass(slots=True)
class Translation:
    """A file's content by the models' names."""

    data: Any
    written: dict[KeyPath, KeyPath] = field(default_factory=dict)
    """Path by the models' names → path as the file writes it, where the last key of the two differs."""
    old_names: list[tuple[KeyPath, str]] = field(default_factory=list)
    """Where the file uses an old name, as it is written there, and what to write instead."""
    conflicts: list[tuple[KeyPath, str]] = field(default_factory=list)
    """Likewise, where the new name is there too."""

    def as_written(self, path: KeyPath) -> KeyPath:
        """`path`, which is by the models' names, as the file writes it."""
        found: KeyPath = ()
        for end in range(1, len(path) + 1):
            found = self.written.get(path[:end]) or (*found, path[end - 1])
        return found


def translate(data: Any, table: Sequence[Renaming]) -> Translation:
    """`data` is what a YAML file stands for; it is not changed."""
    translation = Translation(_unshared(data) if table else data)
    for row in table:
        if isinstance(row, MovedKey):
            _move(translation, row)
            continue
        for path, section in _sections(translation.data, row.section.split(".") if row.section else []):
            _rename(translation, row, path, section)
    return translation


def _rename(translation: Translation, row: RenamedKey, path: KeyPath, section: dict[Any, Any]) -> None:
    place = translation.as_written(path)
    if row.old in section:
        if row.new in section:
            translation.conflicts.append(
                ((*place, row.old), f"the old name of {row.new}, which is there too; keep that")
            )
        else:
            advice = f"is called {row.new} now; the old name is accepted until version {row.dropped_in}"
            translation.old_names.append(((*place, row.old), advice))
    if row.new in section:
        section[row.old] = section.pop(row.new)
        translation.written[(*path, row.old)] = (*place, row.new)


def _move(translation: Translation, row: MovedKey) -> None:
    top = translation.data
    source = top.get(row.section) if isinstance(top, dict) else None
    if not isinstance(source, dict) or row.old not in source:
        return
    value, place, name = source.pop(row.old), (row.section, row.old), f"{row.new_section}.{row.new}"
    target = top.setdefault(row.new_section, {})
    if not isinstance(target, dict):
        return  # which is what the file is refused for
    if row.new in target:
        translation.conflicts.append((place, f"the old name of {name}, which is there too; keep that"))
        return
    target[row.new] = value
    translation.written[(row.new_section, row.new)] = place
    advice = f"is called {name} now; the old name is accepted until version {row.dropped_in}"
    translation.old_names.append((place, advice))


def _sections(node: Any, steps: Sequence[str], path: KeyPath = ()) -> Iterator[tuple[KeyPath, dict[Any, Any]]]:
    """The mappings that `steps` lead to, with their paths."""
    if not steps:
        if isinstance(node, dict):
            yield path, node
        return
    step, rest = steps[0], steps[1:]
    inner: list[tuple[KeyPath, Any]] = []
    if step == "[]":
        inner = [((*path, at), each) for at, each in enumerate(node)] if isinstance(node, list) else [(path, node)]
    elif isinstance(node, dict):
        inner = [((*path, key), node[key]) for key in (list(node) if step == "*" else [step]) if key in node]
    for inner_path, each in inner:
        yield from _sections(each, rest, inner_path)


def _unshared(value: Any) -> Any:
    """A copy in which what several aliases of YAML stand for is there several times."""
    if isinstance(value, dict):
        return {key: _unshared(each) for key, each in value.items()}
    return [_unshared(each) for each in value] if isinstance(value, list) else value


def with_both_names(schema: dict[str, Any], table: Sequence[Renaming]) -> dict[str, Any]:
    """`schema`, the JSON Schema of a model, with the new names, and the old ones marked as deprecated. Changes it."""
    for row in table:
        for section in _schemas(schema, schema, row.section.split(".") if row.section else []):
            properties = section["properties"]
            if isinstance(row, MovedKey):
                name = f"{row.new_section}.{row.new}"
                (moved,) = _schemas(schema, schema, [row.new_section])
                known = moved["properties"][row.new]
            else:
                name, known = row.new, properties.get(row.new) or properties[row.old]
                properties[row.new] = known
            note = f"Old name of {name}, accepted until version {row.dropped_in}."
            properties[row.old] = {**known, "deprecated": True, "description": note}
    return schema


def _schemas(schema: dict[str, Any], node: Any, steps: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The schemas of the mappings that `steps` lead to."""
    for each in _variants(schema, node):
        if not steps:
            if "properties" in each:
                yield each
        elif steps[0] == "[]":
            yield from _schemas(schema, each.get("items", each), steps[1:])
        elif steps[0] == "*":
            yield from _schemas(schema, each.get("additionalProperties", {}), steps[1:])
        elif steps[0] in each.get("properties", {}):
            yield from _schemas(schema, each["properties"][steps[0]], steps[1:])


def _variants(schema: dict[str, Any], node: Any) -> Iterator[dict[str, Any]]:
    """`node` with its references followed, and each of the forms that it may take."""
    if not isinstance(node, dict):
        return
    if "$ref" in node:
        yield from _variants(schema, schema["$defs"][node["$ref"].rpartition("/")[2]])
        return
    yield node
    for each in node.get("anyOf", ()):
        yield from _variants(schema, each)
