"""Keys of gateway.yaml and policies that have a better name now: the old and the new one are both accepted.

The models keep the old name of most keys, because fingerprints of policies, which cached answers depend on, are made
from the models' field names. A file is therefore brought to the models' names before it is validated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.domain.backend import STRENGTHS, tier_of

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


@dataclass(frozen=True, slots=True)
class RenamedValue:
    """One of the words that `key` may have as its value. `old`: the models' word, which the models still have."""

    section: str
    key: str
    old: str
    new: str
    dropped_in: str = DROPPED_IN


@dataclass(frozen=True, slots=True)
class SwitchToValue:
    """A switch `old` that became one more value of `key`: `old: false` is `key: value` now."""

    section: str
    old: str
    key: str
    value: str
    dropped_in: str = DROPPED_IN


@dataclass(frozen=True, slots=True)
class SplitTier:
    """A backend's `tier`, which meant its strength and, for `hosted`, where it runs."""

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
"""Of gateway.yaml. A section stands before the keys in it."""

POLICY: tuple[Renaming, ...] = (
    RenamedKey("", "share", "rollout"),
    RenamedKey("", "trials", "learning"),
    *_budget("budget.[]"),
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
    """Likewise, where the file has the new name too."""

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
        _tell(translation, row, (*place, row.old), row.new, taken=row.new in section)
    if row.new in section:
        section[row.old] = section.pop(row.new)
        translation.written[(*path, row.old)] = (*place, row.new)


def _move(translation: Translation, row: MovedKey, section: dict[Any, Any]) -> None:
    target = translation.data.setdefault(row.new_section, {}) if row.old in section else None
    if not isinstance(target, dict):
        section.pop(row.old, None)  # the file is refused for what stands there instead
        return
    value, place = section.pop(row.old), (row.section, row.old)
    _tell(translation, row, place, f"{row.new_section}.{row.new}", taken=row.new in target)
    if row.new not in target:
        target[row.new] = value
        translation.written[(row.new_section, row.new)] = place


def _rename_value(translation: Translation, row: RenamedValue, path: KeyPath, section: dict[Any, Any]) -> None:
    if section.get(row.key) == row.old:
        place = (*translation.as_written(path), row.key)
        translation.old_names.append((place, f"{row.old} is called {row.new} now; {_until(row)}"))
    elif section.get(row.key) == row.new:
        section[row.key] = row.old


def _replace_switch(translation: Translation, row: SwitchToValue, path: KeyPath, section: dict[Any, Any]) -> None:
    place, chosen = translation.as_written(path), section.get(row.key) == row.value
    if row.old in section and (chosen or str(section[row.old]).lower() in _OFF):
        _tell(translation, row, (*place, row.old), f"{row.key}: {row.value}", taken=chosen)
    elif row.old in section:
        advice = f"leave it out, since it is so unless {row.key} is {row.value}; {_until(row)}"
        translation.old_names.append(((*place, row.old), advice))
    if chosen:
        del section[row.key]
        section[row.old] = False
        translation.written[(*path, row.old)] = (*place, row.key)


_OFF = ("false", "no", "off", "0", "f", "n")
"""What a switch of the models takes for false."""


def _split_tier(translation: Translation, row: SplitTier, path: KeyPath, section: dict[Any, Any]) -> None:
    if row.old not in section:
        return
    place = (*translation.as_written(path), row.old)
    if row.new in section:
        translation.conflicts.append((place, f"the old name of {row.new} and location; keep those"))
        del section[row.old]
    else:
        translation.old_names.append((place, f"{_instead_of_tier(section)}; {_until(row)}"))


def _instead_of_tier(backend: Mapping[Any, Any]) -> str:
    """The keys that replace the `tier` of `backend`, as far as any do."""
    tier = backend["tier"]
    kind, base_url, location = (str(backend.get(name) or "") for name in ("kind", "base_url", "location"))
    if tier not in STRENGTHS:
        return "leave it out" if location else "write location: hosted instead"
    if tier_of(tier, kind, base_url, location) == tier:
        return f"write strength: {tier} instead"
    if tier_of(tier, kind, base_url, "local") == tier and not location:
        return (
            f"write strength: {tier} instead, and location: local if the machine is your own: without it, policies "
            "select the backend by hosted"
        )
    return f"write strength: {tier} instead: then policies select the backend by hosted, as prompts to it leave"


def _tell(translation: Translation, row: Renaming, place: KeyPath, new: str, *, taken: bool) -> None:
    if taken:
        translation.conflicts.append((place, f"the old name of {new}, which is there too; keep that"))
    else:
        translation.old_names.append((place, f"is called {new} now; {_until(row)}"))


def _until(row: Renaming) -> str:
    return f"the old name is accepted until version {row.dropped_in}"


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


def values(key: str, words: Sequence[str]) -> list[str]:
    """The values that `key` may have in a file; `words`: those that its model has."""
    rows = [row for table in _TABLES.values() for row in table]
    new = {row.old: row.new for row in rows if isinstance(row, RenamedValue) and row.key == key}
    more = {row.value: None for row in rows if isinstance(row, SwitchToValue) and row.key == key}
    return [*(new.get(word, word) for word in words), *more]


def with_both_names(schema: dict[str, Any], table: Sequence[Renaming]) -> dict[str, Any]:
    """`schema`, the JSON Schema of a model, with the new names, and the old ones marked as deprecated. Changes it."""
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
