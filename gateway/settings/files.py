"""Loads YAML files into validated objects. Errors name the file, the line, the key and the remedy."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from gateway.settings.bounded_yaml import OPERATOR, TEAM, Bounds, read
from gateway.settings.regular_file import Unreadable, read_text
from gateway.settings.remedies import meant, remedy, shown, yaml_remedy
from gateway.settings.renamed_keys import KeyPath, OldName, Translation, renamings, translate

Model = TypeVar("Model", bound=BaseModel)


class ConfigError(ValueError):
    """Raised for one or more mistakes in a file. Each is a line such as `policies/search.yaml:7: budget.limit_usd: must
    be above 0`."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


MOST_PROBLEMS = 20
"""Maximum number of mistakes that are reported for one file. The others are reported after these have been
corrected."""


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file, or one section of it."""

    name: str
    """The file, as error messages call it."""
    root: yaml.Node | None
    data: Any
    above: KeyPath = ()
    """Where the section is in the file; empty for the whole file."""

    def section(self, *path: str) -> Document:
        """The section at `path`, which must exist."""
        data = self.data
        for step in path:
            data = data[step]
        return Document(self.name, _node_at(self.root, path)[1], data, (*self.above, *path))

    def place(self, path: KeyPath, written: Mapping[KeyPath, KeyPath] | None = None) -> str:
        """The beginning of an error message about `path`, such as `policies/search.yaml:7: budget.limit_usd: `. If the
        file does not have `path`, its deepest existing part is used. `written`: path in the field names of the settings
        classes → path in the file."""
        line, key = _place(self.root, path, written)
        if line == 1 and self.root is not None:
            line = self.root.start_mark.line + 1
        above = "".join(f"{shown(str(step))}." for step in self.above)
        return f"{self.name}:{line}: {above + key if key else above[:-1] + ': ' if above else ''}"


def read_document(path: Path, within: Path | None = None) -> Document:
    """Read a file as YAML. `within`: folder in which `path` must be a regular file; None: the file may be anywhere.
    Raises ConfigError.
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
    return document(text, name, bounds)


def document(text: str, name: str, bounds: Bounds = OPERATOR) -> Document:
    """Parse `text` as YAML. `name`: the file's name in error messages. Raises ConfigError if the content is not a
    mapping."""
    try:
        root, data = read(text, bounds)
    except Exception as error:  # PyYAML's own errors, and any other that it raises for values that it does not expect
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0] or type(error).__name__
        raise ConfigError([f"{name}:{_line_of(error, text)}: not valid YAML: {yaml_remedy(shown(problem))}"]) from error
    if not isinstance(data, dict):
        what = "a list" if isinstance(data, list) else "a single value"
        raise ConfigError([f"{name}:1: must be a mapping of keys to values, not {what}"])
    return Document(name, root, data)


_BEGINS = ("quoted scalar", "flow sequence", "flow mapping", "simple key")
"""PyYAML's names for structures whose end an author may forget. The error message names the line where the structure
begins, because PyYAML notices the mistake only further below."""


def _line_of(error: Exception, text: str) -> int:
    """The line of a mistake in the file. PyYAML tells no line for characters that it refuses."""
    begins = str(getattr(error, "context", None)).endswith(_BEGINS)
    mark = getattr(error, "context_mark" if begins else "problem_mark", None) or getattr(error, "problem_mark", None)
    if mark is not None:
        return int(mark.line) + 1
    position = getattr(error, "position", None)
    return text.count("\n", 0, position) + 1 if isinstance(position, int) else 1


def load(
    path: Path, model: type[Model], *, within: Path | None = None, on_old_name: Callable[[OldName], None] | None = None
) -> Model:
    """Load a file and validate it as `model`. Raises ConfigError with all mistakes. `within`: folder in which
    `path` must be a regular file; None: the file may be anywhere. `on_old_name`: called for each key with an old
    name, at most MOST_PROBLEMS times.
    """
    return loaded_as(read_document(path, within), model, on_old_name)


def parse(
    text: str,
    model: type[Model],
    name: str,
    bounds: Bounds = OPERATOR,
    on_old_name: Callable[[OldName], None] | None = None,
) -> Model:
    """Parse `text` and validate it as `model`. `name`: the file's name in error messages. Raises ConfigError with all
    mistakes."""
    return loaded_as(document(text, name, bounds), model, on_old_name)


def loaded_as(found: Document, model: type[Model], on_old_name: Callable[[OldName], None] | None) -> Model:
    """Validate `found`, a file that was already read, as `model`. Raises ConfigError with all mistakes. `on_old_name`:
    called for each key with an old name, at most MOST_PROBLEMS times.
    """
    translation = translate(found.data, renamings(model))
    if on_old_name is not None:
        for each in old_names(found, translation):
            on_old_name(each)
    conflicts = [partial(_line, found, path, advice) for path, advice in translation.conflicts]
    return validated(model, translation.data, lambda path: found.place(path, translation.written), conflicts)


def old_names(found: Document, translation: Translation) -> list[OldName]:
    """The keys that the file writes with their old names. If there are too many, the last element contains the number
    of the remaining keys.
    """
    lines = [partial(_line, found, path, advice) for path, advice in translation.old_names]
    keys = [_place(found.root, path)[1].removesuffix(": ") for path, _ in translation.old_names[:MOST_PROBLEMS]]
    return [OldName(key, line) for key, line in zip_longest(keys, _at_most(lines, found.name), fillvalue="")]


def _line(found: Document, path: KeyPath, advice: str) -> str:
    return found.place(path) + advice


def validated(
    model: type[Model], data: Any, place: Callable[[KeyPath], str], conflicts: Sequence[Callable[[], str]] = ()
) -> Model:
    """Validate `data` as a `model`. The keys of `data` are field names of the model. `place`: path → beginning of an
    error message. `conflicts`: mistakes that were found before. Raises ConfigError."""
    mistakes, top = list(conflicts), place(())
    name = top.rsplit(":", 2)[0]
    try:
        found = model.model_validate(data)
    except ValidationError as error:
        mistakes += [partial(_mistake, place, each, model) for each in meant(error.errors(include_url=False))]
        raise ConfigError(_at_most(mistakes, name)) from error
    except Exception as error:  # a value that no validator expected; the file is wrong, not the gateway
        raise ConfigError([f"{top}contains a value that cannot be used: {shown(str(error))}"]) from error
    if mistakes:
        raise ConfigError(_at_most(mistakes, name))
    return found


def _mistake(place: Callable[[KeyPath], str], problem: Any, model: type[BaseModel]) -> str:
    text = remedy(problem, model)
    key = text.partition(" ")[0].rstrip(":")
    if problem["type"] == "value_error" and isinstance(problem["input"], dict) and key in problem["input"]:
        return place((*problem["loc"], key)) + text[len(key) :].lstrip(": ")
    return place(problem["loc"]) + text


def _at_most(lines: Sequence[Callable[[], str]], name: str) -> list[str]:
    """The texts of the first `MOST_PROBLEMS` mistakes. `lines`: functions that return a text each. No more of them are
    called than necessary, because they are slow."""
    found, more = [line() for line in lines[:MOST_PROBLEMS]], len(lines) - MOST_PROBLEMS
    return found if more <= 0 else [*found, f"{name}: and {more} more"]


_BRANCH = re.compile(r"[\[\]() ]|^[A-Z]")
"""Matches pydantic's names for the branches of a union. No key of a file looks like one."""


def _place(root: yaml.Node | None, path: KeyPath, written: Mapping[KeyPath, KeyPath] | None = None) -> tuple[int, str]:
    """The place of `path` in the file: the line of the deepest node that the file has, and the path of that node as the
    file writes it. `written`: path in the field names of the settings classes → path in the file."""
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
