"""YAML → validated objects; every complaint names file, line, key and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)


class ConfigError(ValueError):
    """One or more mistakes in a file, a line each: `policies/search.yaml:7: budget.limit_usd: must be above 0`."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class _Loader(yaml.SafeLoader):
    """YAML 1.2 booleans: a bare `off`, `no` or `on` is a word, not a truth value."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def _construct_unique(loader: Any, node: Any) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.value in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key_node.value!r} is there twice", key_node.start_mark
            )
        seen.add(key_node.value)
    mapping: dict[Any, Any] = yaml.SafeLoader.construct_mapping(loader, node, deep=True)
    return mapping


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_unique)


def load(path: Path, model: type[Model]) -> Model:
    """The file's content as `model`. Raises ConfigError with every mistake found."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError([f"{path}: no such file; check the path"]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}"]) from error
    return parse(text, model, str(path))


def parse(text: str, model: type[Model], name: str) -> Model:
    """`text` as `model`; `name` is what complaints call it. Raises ConfigError."""
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        data = {} if root is None else loader.construct_document(root)
    except (yaml.MarkedYAMLError, yaml.reader.ReaderError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError([f"{name}{line}: not valid YAML: {problem}"]) from error
    finally:
        loader.dispose()
    if not isinstance(data, dict):
        raise ConfigError([f"{name}:1: must be a mapping of keys to values, not {type(data).__name__}"])
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(
            "{}:{}: {}{}".format(name, *_place(root, problem["loc"]), _remedy(problem))
            for problem in _meant(error.errors(include_url=False))
        ) from error


def _meant(problems: Sequence[Any]) -> list[Any]:
    """Without what a mapping is told for not being the text that could stand in its place."""
    return [each for each in problems if not (each["loc"][-1:] == ("str",) and isinstance(each["input"], dict))]


_BRANCH = re.compile(r"[\[\]() ]|^[A-Z]")
"""How pydantic calls the branch of a union: no key of a file looks so."""


def _place(root: yaml.Node | None, path: tuple[int | str, ...]) -> tuple[int, str]:
    """The line of the deepest node on `path` that the file really has, and the path as people write it."""
    node, line, steps = root, 1, []
    for step in path:
        if isinstance(node, yaml.MappingNode):
            if isinstance(step, int):
                continue  # one, where a list may stand too
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
        steps.append(str(step))
    return line, ".".join(steps) + ": " if steps else ""


def _remedy(problem: Any) -> str:
    match problem["type"]:
        case "extra_forbidden":
            return "unknown key; remove it or correct its spelling"
        case "missing":
            return "is missing; add it"
        case "value_error":
            return str(problem["ctx"]["error"])
        case "literal_error":
            return f"must be {problem['ctx']['expected']}, not {problem['input']!r}"
        case "string_pattern_mismatch":
            return f"must match {problem['ctx']['pattern']}, not {problem['input']!r}"
        case _:
            message = str(problem["msg"])
            return message[:1].lower() + message[1:] + f", not {problem['input']!r}"
