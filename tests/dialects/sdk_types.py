"""The SDKs' own types, taken strictly: nothing missing, nothing of another type, nothing that they don't know."""

from __future__ import annotations

import collections.abc
import types
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import get_type_hints, is_typeddict

_WRAPPERS = (Required, NotRequired)
_MANY = (list, collections.abc.Iterable, collections.abc.Sequence)


def misfits(value: Any, kind: Any, where: str = "$") -> list[str]:
    """Why `value`, parsed JSON, is not a `kind`: a type that an SDK declares for requests. Empty when it is."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in (Any, object):
        return []
    if origin in _WRAPPERS:
        return misfits(value, inner[0], where)
    if origin in (Union, types.UnionType):
        return _closest(value, inner, where)
    if origin is Literal:
        return [] if value in inner else [f"{where}: {value!r} is not one of {inner}"]
    if is_typeddict(kind):
        return _in_dict(value, kind, where)
    if origin is dict:
        return [] if isinstance(value, dict) else [f"{where}: no object"]
    if origin in _MANY or "Sequence" in str(origin):
        if not isinstance(value, list):
            return [f"{where}: no array"]
        return [each for number, item in enumerate(value) for each in misfits(item, inner[0], f"{where}[{number}]")]
    if kind is float:
        return [] if type(value) in (int, float) else [f"{where}: no number"]
    if isinstance(kind, type) and not issubclass(kind, BaseModel):
        return [] if type(value) is kind else [f"{where}: {value!r} is no {kind.__name__}"]
    return [f"{where}: no {kind}"]


def _closest(value: Any, kinds: tuple[Any, ...], where: str) -> list[str]:
    """Fits any of `kinds`, else what keeps it from the one that it is nearest to."""
    found = [misfits(value, kind, where) for kind in kinds if get_origin(kind) is not Annotated]
    return min(found, key=lambda wrong: (len(wrong), -max((len(each) for each in wrong), default=0)))


def _in_dict(value: Any, kind: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: no {kind.__name__}"]
    hints = get_type_hints(kind, include_extras=True)
    origins: dict[str, Any] = {name: get_origin(hint) for name, hint in hints.items()}
    needed = {name for name, origin in origins.items() if origin is Required}
    wrong = [f"{where}.{name}: missing" for name in needed - value.keys()]
    for name, item in value.items():
        if name in hints:
            wrong += misfits(item, hints[name], f"{where}.{name}")
        elif (getattr(kind, "__pydantic_config__", None) or {}).get("extra") != "allow":
            wrong.append(f"{where}.{name}: unknown to {kind.__name__}")
    return wrong


def unknown(model: BaseModel, where: str = "$") -> list[str]:
    """Fields in `model`, validated out of an answer, that the SDK has no name for."""
    found = [f"{where}.{name}" for name in model.__pydantic_extra__ or ()]
    for name in type(model).model_fields:
        value = getattr(model, name)
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(item, BaseModel):
                found += unknown(item, f"{where}.{name}[{number}]" if isinstance(value, list) else f"{where}.{name}")
    return found
