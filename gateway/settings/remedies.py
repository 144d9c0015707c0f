"""Converts the mistakes that pydantic and PyYAML find to sentences that name the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel

from gateway.settings.renamed_keys import renamings, values, variants, with_both_names

_SHOWN = 120
"""Maximum number of characters of a value that are repeated in an error message."""
_SENTENCE = 500
"""Maximum number of characters of a validator's message. The limit is needed, because the message may contain a value
from the file."""
_BESIDE = {"Policy": ("extends", "base", "teams", "bases")}
"""Settings class of a file → keys of the file that are not fields of the class."""
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "string": "text; put it in quotes",
    "tuple": "a list, such as [one, two]",
    "list": "a list, such as [one, two]",
    "set": "a list, such as [one, two]",
    "frozen_set": "a list, such as [one, two]",
    "dict": "a section with keys of its own",
    "model": "a section with keys of its own",
    "dataclass": "a section with keys of its own",
    "mapping": "a section with keys of its own",
}
"""First word of pydantic's error type → the expected value."""
_BOUNDS = {
    "greater_than": ("gt", "above {}"),
    "greater_than_equal": ("ge", "at least {}"),
    "less_than": ("lt", "below {}"),
    "less_than_equal": ("le", "at most {}"),
    "string_too_short": ("min_length", "at least {} characters long"),
    "string_too_long": ("max_length", "at most {} characters long"),
    "too_short": ("min_length", "at least {} items long"),
    "too_long": ("max_length", "at most {} items long"),
    "decimal_max_places": ("decimal_places", "a number with at most {} decimal places"),
}
"""Pydantic's error type → (key under which pydantic reports the bound, text of the requirement with a place for the
bound)."""
_PATTERNS = {
    r"^env:[A-Z][A-Z0-9_]*$": "env:NAME, the name of an environment variable",
    r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$": "env:NAME or file:PATH",
}
_YAML = (
    (r"character '\\t'", "a tab; indent with spaces"),
    (r"cannot start any token", "a character that cannot begin a value; put the value in quotes"),
    (r"mapping values are not allowed", "a colon that is not expected; correct the indentation, or quote the value"),
    (r"could not find expected ':'", "a key without a colon; add `: ` after it"),
    (r"expected ',' or '\]'", "a list that is not closed; add `]` or a comma"),
    (r"expected ',' or '\}'", "a { that is not closed; add `}` or a comma"),
    (r"expected <block end>", "the indentation does not fit the lines above; align it with them"),
    (r"unexpected end of stream|while scanning a quoted", "a quote that is not closed; add it"),
    (r"undefined alias", "an alias without an anchor; put the value in quotes"),
    (r"unknown escape character", "an unknown escape in double quotes; use single quotes"),
    (r"constructor for the tag|tag handle|unknown tag", "a tag (!); put the value in quotes"),
    (r"occurs twice", ""),
    (r"special characters are not allowed", "a control character; remove it"),
    (r"expected the node content|expected alphabetic or numeric", "a value that is not complete; put it in quotes"),
    (r"expected '<document start>'", "the first lines are not indented alike; align them"),
    (r"document start|end of the document|single document", "more than one document; remove `---`"),
)
"""(Regular expression for PyYAML's message, replacement in plain words). If the replacement is empty, only a remedy is
added to PyYAML's message."""


def shown(text: str, most: int = _SHOWN) -> str:
    """Shorten `text`, which comes from a file, to at most `most` characters on one line, for an error message."""
    text = text if text.isprintable() else text.encode("unicode_escape").decode()
    return text if len(text) <= most else f"{text[:most]}…"


def meant(problems: Sequence[Any]) -> list[Any]:
    """Select the mistakes in `problems` that the author of the file probably made. If a value may have several forms,
    the mistakes about the forms that were not used are left out."""
    found = [each for each in problems if not (each["loc"][-1:] == ("str",) and isinstance(each["input"], dict))]
    texts = {each["loc"][:-1] for each in found if each["loc"][-1:] == ("str",)}
    refused = [each for each in found if each["type"] == "value_error"]
    numbers = {each["loc"][:-1] for each in refused if _begins_with_digit(each["input"])}
    unused = {"model_type": texts, "literal_error": numbers}
    return [each for each in found if each["loc"][:-1] not in unused.get(each["type"], ())]


def _begins_with_digit(value: Any) -> bool:
    """Whether the author of the file meant `value` as a number, and not as one of several words."""
    return str(value)[:1].isdigit()


def yaml_remedy(problem: str) -> str:
    """Put PyYAML's message into plain words, with a remedy."""
    for pattern, words in _YAML:
        if re.search(pattern, problem):
            return words or f"{problem}; remove one of them"
    return problem if ";" in problem else f"{problem}; correct the line, or put the value in quotes"


def did_you_mean(word: str, known: Sequence[str], otherwise: str) -> str:
    """The text `did you mean limit_usd?` if one of `known` is similar to `word`; otherwise the text `otherwise`."""
    near = closest(word.lower(), known)
    return f"did you mean {near}?" if near else otherwise


def closest(word: str, known: Iterable[str]) -> str | None:
    """The one of `known` that is most similar to `word`; None if none is similar."""
    from difflib import get_close_matches  # only mistakes need it

    return next(iter(get_close_matches(word, list(known), 1)), None)


def remedy(problem: Any, model: type[BaseModel]) -> str:
    """A sentence that names the mistake and its remedy. `model`: the settings class of the whole file."""
    kind, context = str(problem["type"]), problem.get("ctx", {})
    if kind in _BOUNDS:
        key, wanted = _BOUNDS[kind]
        return f"must be {wanted.format(_number(context[key]))}, not {_input(problem)}"
    match kind:
        case "extra_forbidden":
            return f"unknown key; {_instead(problem, model)}"
        case "missing":
            return "is missing; add it"
        case "value_error":
            return shown(str(context["error"]), _SENTENCE)
        case "literal_error" | "enum":
            return _not_a_choice(problem)
        case "string_pattern_mismatch":
            pattern = context["pattern"]
            return (
                f"must be {_PATTERNS[pattern]}, not {_input(problem)}"
                if pattern in _PATTERNS
                else (f"must match {pattern}, not {_input(problem)}")
            )
    expected = _KINDS.get(kind.rpartition("_")[0]) or _KINDS.get(kind.partition("_")[0])
    if expected:
        return f"must be {expected}, not {_input(problem)}"
    message = str(problem["msg"]).replace("Input should be", "must be")
    return message[:1].lower() + message[1:] + f", not {_input(problem)}"


def _instead(problem: Any, model: type[BaseModel]) -> str:
    *above, key = problem["loc"]
    known = sorted({*_keys_at(model, above), *(() if above else _BESIDE.get(model.__name__, ()))})
    return did_you_mean(str(key), known, "remove it or correct its spelling")


def is_unknown(model: type[BaseModel], path: Sequence[str | int]) -> bool:
    """Return whether the last step of `path` is an unknown key, in a section whose keys have fixed names."""
    *above, key = path
    schema = _schema(model)
    nodes: list[Any] = [schema]
    for step in above:
        nodes = [inner for node in nodes for inner in _inside(schema, node, step)]
    forms = [each for node in nodes for each in variants(schema, node)]
    fixed = [each for each in forms if "properties" in each and not each.get("additionalProperties")]
    return (
        bool(fixed)
        and len(fixed) == len([each for each in forms if each.get("type") == "object"])
        and not any(key in each["properties"] for each in fixed)
    )


def _keys_at(model: type[BaseModel], path: Sequence[str | int]) -> set[str]:
    """The keys that the section at `path` may have, with their present names."""
    schema = _schema(model)
    nodes = [schema]
    for step in path:
        nodes = [inner for node in nodes for inner in _inside(schema, node, step)] or nodes  # a branch of a union
    return {
        key
        for node in nodes
        for each in variants(schema, node)
        for key, value in each.get("properties", {}).items()
        if not value.get("deprecated")
    }


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return with_both_names(model.model_json_schema(mode="validation"), renamings(model))


def _inside(schema: dict[str, Any], node: Any, step: str | int) -> Iterator[Any]:
    for each in variants(schema, node):
        if isinstance(step, int):
            if "items" in each:
                yield each["items"]
        elif step in each.get("properties", {}):
            yield each["properties"][step]
        elif isinstance(each.get("additionalProperties"), dict):
            yield each["additionalProperties"]


def _not_a_choice(problem: Any) -> str:
    choices = _choices(problem)
    *most, last = map(repr, choices)
    wanted = f"{', '.join(most)} or {last}" if most else last
    word = problem["input"]
    near = closest(word.lower(), choices) if isinstance(word, str) else None
    meant = f"; did you mean {near}?" if near else ""
    return f"must be {wanted}, not {_input(problem)}{meant}"


def _choices(problem: Any) -> list[str]:
    """The permitted values, with their new names."""
    expected = str(problem["ctx"]["expected"])
    words = expected.split("'")[1::2] if "'" in expected else [expected]
    key = next((str(step) for step in reversed(problem["loc"]) if isinstance(step, str) and step.isidentifier()), "")
    return values(key, words)


def _number(bound: object) -> str:
    return f"{bound:,}" if isinstance(bound, int) and abs(bound) >= 10**6 else str(bound)


def _input(problem: Any) -> str:
    if problem["input"] is None or isinstance(problem["input"], bool):
        return {None: "null", True: "true", False: "false"}[problem["input"]]  # as YAML writes them
    try:
        return shown(repr(problem["input"]))
    except ValueError:  # an integer of thousands of digits cannot be converted to decimal text
        return "that number"
