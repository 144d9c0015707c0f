"""Loads YAML files into validated objects. Errors name file, line, key and remedy."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from gateway.settings.bounded_yaml import OPERATOR, TEAM, Bounds, read
from gateway.settings.regular_file import Unreadable, read_text
from gateway.settings.renamed_keys import KeyPath, OldName, Translation, renamings, translate, values

Model = TypeVar("Model", bound=BaseModel)


class ConfigError(ValueError):
    """One or more mistakes in a file, one line each: `policies/search.yaml:7: budget.limit_usd: must be above 0`."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


MOST_PROBLEMS = 20
"""Maximum mistakes that are reported for one file. Further ones are reported after these are corrected."""
_SHOWN = 120
"""Maximum characters of a value that an error message repeats."""
_SENTENCE = 500
"""Maximum characters of a validator's message, because it may contain a value."""


def shown(text: str, most: int = _SHOWN) -> str:
    """`text` from a file, on one line and shortened to `most` characters, for an error message."""
    text = text if text.isprintable() else text.encode("unicode_escape").decode()
    return text if len(text) <= most else f"{text[:most]}…"


def load(
    path: Path, model: type[Model], *, within: Path | None = None, on_old_name: Callable[[OldName], None] | None = None
) -> Model:
    """The file's content as `model`. Raises ConfigError with every mistake that was found.

    `within`: the file is a policy and must be a regular file in that folder. `on_old_name`: called for each key that
    the file writes by its old name, at most MOST_PROBLEMS times.
    """
    bounds = OPERATOR if within is None else TEAM
    name = shown(os.fsencode(path).decode("utf-8", "backslashreplace"))
    try:
        text = read_text(path, within, bounds.size_bytes)
    except FileNotFoundError:
        raise ConfigError([f"{name}: no such file; check the path"]) from None
    except Unreadable as error:
        raise ConfigError([f"{name}: {error}"]) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise ConfigError([f"{name}: cannot be read: {reason}"]) from error
    return parse(text, model, name, bounds, on_old_name)


def parse(
    text: str,
    model: type[Model],
    name: str,
    bounds: Bounds = OPERATOR,
    on_old_name: Callable[[OldName], None] | None = None,
) -> Model:
    """`text` as `model`. `name`: the file's name in error messages. Raises ConfigError for any mistake in it."""
    try:
        root, data = read(text, bounds)
    except Exception as error:  # PyYAML's own errors, and any other that it raises for values that it does not expect
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0] or type(error).__name__
        raise ConfigError([f"{name}{line}: not valid YAML: {shown(problem)}"]) from error
    if not isinstance(data, dict):
        raise ConfigError([f"{name}:1: must be a mapping of keys to values, not {type(data).__name__}"])
    return _validated(model, name, root, translate(data, renamings(model)), on_old_name)


def _validated(
    model: type[Model],
    name: str,
    root: yaml.Node | None,
    translation: Translation,
    on_old_name: Callable[[OldName], None] | None,
) -> Model:
    if on_old_name is not None:
        old_names = [(_place(root, path), advice) for path, advice in translation.old_names[:MOST_PROBLEMS]]
        keys = [key.removesuffix(": ") for (_, key), _ in old_names]
        for key, line in zip_longest(keys, _lines(name, old_names, len(translation.old_names)), fillvalue=""):
            on_old_name(OldName(key, line))
    mistakes = [(_place(root, path), remedy) for path, remedy in translation.conflicts[:MOST_PROBLEMS]]
    total = len(translation.conflicts)
    try:
        found = model.model_validate(translation.data)
    except ValidationError as error:
        problems = _meant(error.errors(include_url=False))
        places = [_place(root, one["loc"], translation.written) for one in problems[:MOST_PROBLEMS]]
        mistakes += zip(places, map(_remedy, problems), strict=False)
        raise ConfigError(_lines(name, mistakes, total + len(problems))) from error
    except Exception as error:  # a value that no validator expected: the mistake is in the file, not in the gateway
        raise ConfigError([f"{name}:1: contains a value that cannot be used: {shown(str(error))}"]) from error
    if mistakes:
        raise ConfigError(_lines(name, mistakes, total))
    return found


def _lines(name: str, mistakes: Sequence[tuple[tuple[int, str], str]], total: int) -> list[str]:
    """Lines of an error message. `mistakes`: (line, key) and remedy of the first of `total` mistakes."""
    lines = [f"{name}:{line}: {key}{remedy}" for (line, key), remedy in mistakes[:MOST_PROBLEMS]]
    return lines if total <= MOST_PROBLEMS else [*lines, f"{name}: and {total - MOST_PROBLEMS} more"]


def _meant(problems: Sequence[Any]) -> list[Any]:
    """`problems` without those that only say that a mapping is not a string, if both are allowed."""
    return [each for each in problems if not (each["loc"][-1:] == ("str",) and isinstance(each["input"], dict))]


_BRANCH = re.compile(r"[\[\]() ]|^[A-Z]")
"""Matches pydantic's names for the branches of a union. No key of a file looks like one."""


def _place(root: yaml.Node | None, path: KeyPath, written: Mapping[KeyPath, KeyPath] | None = None) -> tuple[int, str]:
    """The line of the deepest node on `path` that exists in the file, and the path as it is written there.

    `written`: path by the models' names → path in the file, for keys whose names differ.
    """
    node, line, steps = root, 1, []
    followed: KeyPath = ()
    for step in path:
        if written and (place := written.get((*followed, step))):
            (line, node), steps, followed = _node_at(root, place), [shown(str(key)) for key in place], (*followed, step)
            continue
        if isinstance(node, yaml.MappingNode):
            if isinstance(step, int):
                continue  # a single mapping, where a list is also allowed
            found = next(((key, value) for key, value in node.value if key.value == step), None)
            if found is not None:
                line, node = found[0].start_mark.line + 1, found[1]
            elif _BRANCH.search(step):
                continue
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        elif isinstance(step, str) and _BRANCH.search(step):
            continue
        steps.append(shown(str(step)))
        followed = (*followed, step)
    return line, ".".join(steps) + ": " if steps else ""


def _node_at(root: yaml.Node | None, path: KeyPath) -> tuple[int, yaml.Node | None]:
    """The line and the node at `path` in the file."""
    line, node = 1, root
    for step in path:
        if isinstance(node, yaml.MappingNode):
            key, node = next(((key, value) for key, value in node.value if key.value == step), (node, None))
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
    return line, node


def _remedy(problem: Any) -> str:
    match problem["type"]:
        case "extra_forbidden":
            return "unknown key; remove it or correct its spelling"
        case "missing":
            return "is missing; add it"
        case "value_error":
            return shown(str(problem["ctx"]["error"]), _SENTENCE)
        case "literal_error":
            return f"must be {_choice(problem)}, not {_input(problem)}"
        case "string_pattern_mismatch":
            return f"must match {problem['ctx']['pattern']}, not {_input(problem)}"
        case _:
            message = str(problem["msg"])
            return message[:1].lower() + message[1:] + f", not {_input(problem)}"


def _choice(problem: Any) -> str:
    """The permitted values, with their new names: `'a', 'b' or 'c'`."""
    expected = str(problem["ctx"]["expected"])
    *most, last = (
        map(repr, values(str(problem["loc"][-1]), expected.split("'")[1::2])) if "'" in expected else (expected,)
    )
    return f"{', '.join(most)} or {last}" if most else last


def _input(problem: Any) -> str:
    try:
        return shown(repr(problem["input"]))
    except ValueError:  # an integer of thousands of digits cannot be converted to decimal text
        return "that number"
