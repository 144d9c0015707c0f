"""Accepts the old and the new names of renamed keys, in gateway.yaml and in policies.

The settings classes keep the old names of most keys, because policy fingerprints are computed from their field names,
and cached answers depend on the fingerprints. So the keys of a file are translated to the field names of the settings
classes before validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.domain.backend import STRENGTHS, tier_of

DROPPED_IN = "1.0"
"""The version from which the old names are no longer accepted."""

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the top of the file to a value."""


@dataclass(frozen=True, slots=True)
class RenamedKey:
    """A key that has a new name, and no other change. `section`: path of the mapping that contains the key, in the
    field names of the settings classes, such as `a.b`; `*` stands for each entry of a mapping, `[]` for each item of a
    list."""

    section: str
    old: str
    new: str
    dropped_in: str = DROPPED_IN


@dataclass(frozen=True, slots=True)
class MovedKey:
    """A key that moved from one top-level section to another. The classes of settings have the key only in the new
    section."""

    section: str
    old: str
    new_section: str
    new: str
    dropped_in: str = DROPPED_IN


@dataclass(frozen=True, slots=True)
class RenamedValue:
    """A permitted value of `key` that has a new name. `old`: the old name, which the settings classes still use."""

    section: str
    key: str
    old: str
    new: str
    dropped_in: str = DROPPED_IN


@dataclass(frozen=True, slots=True)
class SwitchToValue:
    """A boolean key `old` that was replaced by a value of `key`: `old: false` became `key: value`."""

    section: str
    old: str
    key: str
    value: str
    dropped_in: str = DROPPED_IN


@dataclass(frozen=True, slots=True)
class SplitTier:
    """The old key `tier` of a backend, which was replaced by `strength` and `location`. Its value `hosted` was a
    location."""

    section: str
    old: str = "tier"
    new: str = "strength"
    dropped_in: str = DROPPED_IN


Renaming = RenamedKey | MovedKey | RenamedValue | SwitchToValue | SplitTier


def _budget(section: str) -> Sequence[Renaming]:
    return (
        RenamedKey(section, "window", "period"),
        RenamedValue(section, "on_exhausted", "downgrade", "free_only"),
        SwitchToValue(section, "hard", "on_exhausted", "warn"),
    )


GATEWAY: tuple[Renaming, ...] = (
    RenamedKey("", "trials", "learning"),
    RenamedKey("trials", "window", "period"),
    SplitTier("backends.[]"),
    RenamedKey("backends.[]", "window_tokens", "context_window"),
    RenamedKey("backends.[]", "concurrent", "max_parallel_requests"),
    RenamedKey("backends.[]", "queue", "max_pending_requests"),
    RenamedKey("local_model", "window_tokens", "context_window"),
    *_budget("organisations.*.budget.[]"),
    RenamedKey("requests", "stall", "client_write_timeout"),
    MovedKey("requests", "drain_delay", "shutdown", "drain_delay"),
    MovedKey("requests", "drain", "shutdown", "grace_period"),
    RenamedKey("routing", "artefact", "plan_file"),
)
"""Renamings in gateway.yaml. The renaming of a section comes before those of its keys."""

POLICY: tuple[Renaming, ...] = (
    RenamedKey("", "share", "rollout"),
    RenamedKey("", "trials", "learning"),
    *_budget("budget.[]"),
    RenamedKey("models.*", "reference", "baseline"),
)
"""Renamings in policies/TEAM.yaml."""

_TABLES: Mapping[str, Sequence[Renaming]] = {"GatewayConfig": GATEWAY, "Policy": POLICY}


class OldName(NamedTuple):
    """An old name that a file uses."""

    key: str
    """The key with its sections, as the file writes it; empty if `line` only counts further old names."""
    line: str
    """Text with file, line, key and replacement."""


def renamings(model: type) -> Sequence[Renaming]:
    """The renamed keys and values of the file that `model` describes."""
    return _TABLES.get(model.__name__, ())


@dataclass(slots=True)
class Translation:
    """The content of a file, translated to the field names of the settings classes."""

    data: Any
    written: dict[KeyPath, KeyPath] = field(default_factory=dict)
    """Path in the field names of the settings classes → path in the file, if their last keys differ."""
    old_names: list[tuple[KeyPath, str]] = field(default_factory=list)
    """(Path in the file of an old name, advice)."""
    conflicts: list[tuple[KeyPath, str]] = field(default_factory=list)
    """(Path in the file of an old name, advice), for old names whose new name is in the file too."""

    def as_written(self, path: KeyPath) -> KeyPath:
        """Convert `path` from the field names of the settings classes to the names in the file."""
        found: KeyPath = ()
        for end in range(1, len(path) + 1):
            found = self.written.get(path[:end]) or (*found, path[end - 1])
        return found


def translate(data: Any, table: Sequence[Renaming]) -> Translation:
    """Translate `data`, the content of a YAML file, to the field names of the settings classes. Does not change `data`
    itself, but returns a translated copy."""
    translation = Translation(_unshared(data) if table else data)
    for row in table:
        for path, section in _sections(translation.data, _steps(row)):
            match row:
                case RenamedKey():
                    _rename(translation, row, path, section)
                case MovedKey():
                    _move(translation, row, section)
                case RenamedValue():
                    _rename_value(translation, row, path, section)
                case SwitchToValue():
                    _replace_switch(translation, row, path, section)
                case SplitTier():
                    _split_tier(translation, row, path, section)
    return translation


def _steps(row: Renaming) -> list[str]:
    return row.section.split(".") if row.section else []


def _rename(translation: Translation, row: RenamedKey, path: KeyPath, section: dict[Any, Any]) -> None:
    place = translation.as_written(path)
    if row.old in section:
        _note_old_name(translation, row, (*place, row.old), row.new, taken=row.new in section)
    if row.new in section:
        section[row.old] = section.pop(row.new)
        translation.written[(*path, row.old)] = (*place, row.new)


def _move(translation: Translation, row: MovedKey, section: dict[Any, Any]) -> None:
    target = translation.data.setdefault(row.new_section, {}) if row.old in section else None
    if not isinstance(target, dict):
        section.pop(row.old, None)  # validation then refuses the file, because the section is not a mapping
        return
    value, place = section.pop(row.old), (row.section, row.old)
    _note_old_name(translation, row, place, f"{row.new_section}.{row.new}", taken=row.new in target)
    if row.new not in target:
        target[row.new] = value
        translation.written[(row.new_section, row.new)] = place


def _rename_value(translation: Translation, row: RenamedValue, path: KeyPath, section: dict[Any, Any]) -> None:
    if section.get(row.key) == row.old:
        place = (*translation.as_written(path), row.key)
        translation.old_names.append((place, f"{row.old} is now called {row.new}; {_until(row)}"))
    elif section.get(row.key) == row.new:
        section[row.key] = row.old


def _replace_switch(translation: Translation, row: SwitchToValue, path: KeyPath, section: dict[Any, Any]) -> None:
    place, chosen = translation.as_written(path), section.get(row.key) == row.value
    if row.old in section and (chosen or str(section[row.old]).lower() in _OFF):
        _note_old_name(translation, row, (*place, row.old), f"{row.key}: {row.value}", taken=chosen)
    elif row.old in section:
        advice = f"remove it: it is the default unless {row.key} is {row.value}; {_until(row)}"
        translation.old_names.append(((*place, row.old), advice))
    if chosen:
        del section[row.key]
        section[row.old] = False
        translation.written[(*path, row.old)] = (*place, row.key)


_OFF = ("false", "no", "off", "0", "f", "n")
"""Values that the settings classes read as false."""


def _split_tier(translation: Translation, row: SplitTier, path: KeyPath, section: dict[Any, Any]) -> None:
    if row.old not in section:
        return
    place = (*translation.as_written(path), row.old)
    if row.new in section:
        translation.conflicts.append((place, f"is the old name of {row.new} and location; keep only the new ones"))
        del section[row.old]
    else:
        translation.old_names.append((place, f"{_instead_of_tier(section)}; {_until(row)}"))


def _instead_of_tier(backend: Mapping[Any, Any]) -> str:
    """A text that says which keys should replace the `tier` of `backend`."""
    tier = backend["tier"]
    kind, base_url, location = (str(backend.get(name) or "") for name in ("kind", "base_url", "location"))
    if tier not in STRENGTHS:
        return "remove it" if location else "write location: hosted instead"
    if tier_of(tier, kind, base_url, location) == tier:
        return f"write strength: {tier} instead"
    if tier_of(tier, kind, base_url, "local") == tier and not location:
        return (
            f"write strength: {tier} instead, and location: local if the machine is your own; without it, the "
            "backend counts as hosted in policies"
        )
    return f"write strength: {tier} instead; policies then select the backend by hosted, since prompts to it leave"


def _note_old_name(translation: Translation, row: Renaming, place: KeyPath, new: str, *, taken: bool) -> None:
    if taken:
        translation.conflicts.append(
            (place, f"is the old name of {new}, which the file has too; keep only the new one")
        )
    else:
        translation.old_names.append((place, f"is now called {new}; {_until(row)}"))


def _until(row: Renaming) -> str:
    return f"the old name is accepted until version {row.dropped_in}"


def _sections(node: Any, steps: Sequence[str], path: KeyPath = ()) -> Iterator[tuple[KeyPath, dict[Any, Any]]]:
    """Follow the keys in `steps` from `node`, and yield each mapping that is reached, with its path."""
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
    """Make a deep copy in which values that were shared through YAML aliases are separate."""
    if isinstance(value, dict):
        return {key: _unshared(each) for key, each in value.items()}
    return [_unshared(each) for each in value] if isinstance(value, list) else value


def values(key: str, words: Sequence[str]) -> list[str]:
    """The values that `key` may have in a file. `words`: the values that the settings class accepts."""
    rows = [row for table in _TABLES.values() for row in table]
    new = {row.old: row.new for row in rows if isinstance(row, RenamedValue) and row.key == key}
    more = {row.value: None for row in rows if isinstance(row, SwitchToValue) and row.key == key}
    return [*(new.get(word, word) for word in words), *more]


def as_new(path: KeyPath, value: Any, table: Sequence[Renaming]) -> Iterator[tuple[KeyPath, Any]]:
    """Convert a key and its value from the field names of the settings classes to the names in today's files. `path`,
    `value`: the key and the value, as the settings classes name them. `table`: the renamed keys and values. Yields one
    (path, value), or nothing if the key was replaced and its value needs no key."""
    new = list(path)
    for row in table:
        for end, step in enumerate(path):
            if not _matches(_steps(row), path[:end]):
                continue
            match row:
                case RenamedKey() if step == row.old:
                    new[end] = row.new
                case RenamedValue() if step == row.key and value == row.old:
                    value = row.new
                case SwitchToValue() if step == row.old:
                    if value is False:
                        yield (*new[:end], row.key), row.value
                    return
    yield tuple(new), value


def _matches(steps: Sequence[str], path: KeyPath) -> bool:
    return len(steps) == len(path) and all(
        isinstance(key, int) if step == "[]" else step in ("*", key) for step, key in zip(steps, path, strict=True)
    )


def with_both_names(schema: dict[str, Any], table: Sequence[Renaming]) -> dict[str, Any]:
    """Add the new names to `schema`, the JSON Schema of a model, and mark the old names as deprecated. Changes `schema`
    itself."""
    for row in table:
        for section in _schemas(schema, schema, _steps(row)):
            properties = section["properties"]
            match row:
                case RenamedKey():
                    known = properties.setdefault(row.new, properties[row.old])
                    properties[row.old] = _deprecated(known, row, row.new)
                case MovedKey():
                    (target,) = _schemas(schema, schema, [row.new_section])
                    known = target["properties"][row.new]
                    properties[row.old] = _deprecated(known, row, f"{row.new_section}.{row.new}")
                case RenamedValue():
                    known = properties[row.key]
                    words = [row.new if word == row.old else word for word in known.pop("enum", ())]
                    known.setdefault("anyOf", [{"enum": words}, _deprecated({"const": row.old}, row, row.new)])
                case SplitTier():
                    properties[row.old] = _deprecated(properties[row.old], row, f"{row.new} and location")
                case SwitchToValue():
                    words = properties[row.key]["anyOf"][0]["enum"]
                    properties[row.key]["anyOf"][0]["enum"] = list(dict.fromkeys((*words, row.value)))
                    properties[row.old] = _deprecated(properties[row.old], row, f"{row.key}: {row.value}")
    return schema


def _deprecated(known: dict[str, Any], row: Renaming, new: str) -> dict[str, Any]:
    note = f"Old name of {new}, accepted until version {row.dropped_in}."
    return {**known, "deprecated": True, "description": note}


def _schemas(schema: dict[str, Any], node: Any, steps: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Follow the keys in `steps` from `node`, and yield the schema of each mapping that is reached."""
    for each in variants(schema, node):
        if not steps:
            if "properties" in each:
                yield each
        elif steps[0] == "[]":
            yield from _schemas(schema, each.get("items", each), steps[1:])
        elif steps[0] == "*":
            yield from _schemas(schema, each.get("additionalProperties", {}), steps[1:])
        elif steps[0] in each.get("properties", {}):
            yield from _schemas(schema, each["properties"][steps[0]], steps[1:])


def variants(schema: dict[str, Any], node: Any) -> Iterator[dict[str, Any]]:
    """Yield `node` and each of its alternatives (such as `anyOf`). References to schemas are replaced by these
    schemas."""
    if not isinstance(node, dict):
        return
    if "$ref" in node:
        yield from variants(schema, schema["$defs"][node["$ref"].rpartition("/")[2]])
        return
    yield node
    for each in node.get("anyOf", ()):
        yield from variants(schema, each)
