"""Tables of settings: every key of gateway.yaml and of a policy, with its type and default."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from gateway.domain import units
from gateway.domain.backend import Backend
from gateway.domain.policy import Policy, Section
from gateway.settings.gateway import GatewayConfig
from gateway.settings.renamed_keys import values
from tests.docs.reference.new_names import new_name

MODELS: Mapping[str, type[Section]] = {"gateway": GatewayConfig, "backend": Backend, "policy": Policy}
UNSET = "–"
_PARSED = {
    units.parse_share: "share",
    units.parse_duration: "duration",
    units.parse_delay: "duration or `0`",
    units.parse_size: "size",
    units.parse_usd: "USD",
    units.parse_token_usd: "USD per 1M tokens",
}
_PLAIN = {bool: "`true`, `false`", int: "integer", float: "number", str: "text", Decimal: "number"}


def gateway_table(kept: Mapping[str, str], sections: tuple[str, ...]) -> str:
    return _table("gateway", kept, sections)


def backend_table(kept: Mapping[str, str], sections: tuple[str, ...]) -> str:
    return _table("backend", kept, sections)


def policy_table(kept: Mapping[str, str], sections: tuple[str, ...]) -> str:
    return _table("policy", kept, sections)


def _table(model: str, kept: Mapping[str, str], wanted: Sequence[str]) -> str:
    """The keys of the sections named; of all where none is."""
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, field in named(model):
        if not wanted or any(key == section or key.startswith(f"{section}.") for section in wanted):
            meaning = kept.get(key, field.description or "")
            lines.append(f"| `{key}` | {_values(key, type_text(field))} | {default_text(field)} | {meaning} |")
    return "\n".join(lines) + "\n"


def named(model: str) -> Iterator[tuple[str, FieldInfo]]:
    """Dotted key → field, with the names that files have today. The models keep the old ones."""
    for key, field in keys(MODELS[model]):
        if (name := new_name(MODELS[model], key)) is not None:
            yield name, field


def _values(key: str, text: str) -> str:
    """`text`, where it lists values, with those that files have today."""
    words = re.findall("`([^`]+)`", text)
    new = values(key.rpartition(".")[2], words)
    return text if new == words else ", ".join(f"`{word}`" for word in new)


def sections(annotation: Any) -> Iterator[tuple[str, type[Section]]]:
    """("NAME." under a mapping, model) of every section that a field may hold."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield "", annotation
        return
    step = "NAME." if get_origin(annotation) is dict else ""
    for part in get_args(annotation):
        for inner, model in sections(part):
            yield step + inner, model


def keys(model: type[Section], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Dotted key → field; a mere container has no line of its own."""
    for name, field in model.model_fields.items():
        nested = [] if prefix + name == "backends" else list(sections(field.annotation))
        if field.description or not nested:
            yield prefix + name, field
        for step, section in nested:
            yield from keys(section, f"{prefix}{name}.{step}")


def type_text(field: FieldInfo) -> str:
    text = _text(field.annotation, field.metadata)
    low = next((each.gt for each in field.metadata if hasattr(each, "gt")), None)
    least = next((each.ge for each in field.metadata if hasattr(each, "ge")), None)
    bound = f" > {low}" if low is not None else f" ≥ {least}" if least is not None else ""
    return text + (bound if text in ("integer", "number", "share") else "")


def _text(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    for each in metadata:
        if isinstance(each, BeforeValidator) and each.func in _PARSED:
            return _PARSED[each.func]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _text(parts[0], parts[1:])
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_text(part) for part in parts if part is not type(None)))
    if origin in (tuple, frozenset):
        return f"list of {_text(parts[0])}"
    if origin is dict:
        return f"mapping of name to {_text(parts[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return "section"
    return _PLAIN.get(annotation, "text" if annotation.__name__ == "SecretStr" else annotation.__name__)


def default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) or value in (None, "", (), {}, frozenset()):
        return UNSET
    return f"`{_written(value, type_text(field))}`"


def _written(value: Any, kind: str) -> str:
    """As a person writes it into the file."""
    if isinstance(value, tuple):
        return "[" + ", ".join(_written(each, kind.removeprefix("list of ").split(" or ")[-1]) for each in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if kind.startswith("share") and isinstance(value, float):
        return f"{value * 100:g}%"
    if kind.startswith("duration") and isinstance(value, float):
        return _duration(value)
    if kind == "size":
        unit, size = next((unit, size) for unit, size in (("MiB", 2**20), ("KiB", 2**10), ("B", 1)) if not value % size)
        return f"{value // size}{unit}"
    return f'"{value}"' if value == "*" else str(value)


def _duration(seconds: float) -> str:
    if not seconds:
        return "0"
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    unit, size = next((unit, size) for unit, size in (("h", 3600), ("m", 60), ("s", 1)) if not seconds % size)
    return f"{seconds / size:g}{unit}"
