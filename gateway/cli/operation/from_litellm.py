"""Reads the config.yaml of a LiteLLM proxy. Its models become backends and aliases; all other keys are listed with
their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import click
import yaml

from gateway.cli.operation.litellm_model import SECRETS, LeftOut, Model
from gateway.cli.operation.starter_files import Entry, Found
from gateway.settings.environment import variables

_UNFIT = re.compile(r"[^A-Za-z0-9._:/-]+")
_OF_A_TEAM = "limits of a team are `limits` in its policy, and the provider's own limits are obeyed"
_ADVICE: dict[str | int, str] = {
    "rpm": _OF_A_TEAM,
    "tpm": _OF_A_TEAM,
    "fallbacks": "if a backend fails, the other candidates of the model's rule in the policy are called",
    "context_window_fallbacks": "a backend whose context window is too small is not called",
    "num_retries": "a call that fails is tried again, then the next candidate",
    **dict.fromkeys(("timeout", "request_timeout", "stream_timeout"), "`timeout` of a backend limits the call"),
}
"""LiteLLM's key → what the gateway does instead."""
MOST_BYTES = 2**20
MOST_NOTES = 500
"""Maximum notes on one section."""
MOST_STEPS = 12
"""Maximum steps of a path in a note. The limit is needed because, with YAML's
aliases, a value can contain itself."""


def read(path: Path) -> Found:
    """Read a LiteLLM config. Raises ClickException if it cannot be read."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise click.ClickException(f"{path}: is larger than 1 MiB; this is no LiteLLM config.")
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        text: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise click.ClickException(f"{path}: cannot be read: {str(error).splitlines()[0]}.") from error
    if not isinstance(text, dict) or not isinstance(text.get("model_list"), list):
        raise click.ClickException(f"{path}: has no `model_list`; this is no LiteLLM config.")
    return _Reader(path.name, text, root).read()


class _Reader:
    """Reads one LiteLLM config."""

    def __init__(self, file: str, text: dict[str, Any], root: Any) -> None:
        self._file, self._text, self._root = file, text, root
        self._found = Found([])
        self._secrets: dict[str, str] = {}
        """A key that the config contains → the variable from which gateway.yaml takes it."""
        own = text.get("environment_variables")
        own = {str(name): str(value) for name, value in own.items()} if isinstance(own, dict) else {}
        self._variables = {**own, **variables("")}
        self._shared: dict[str, Any] = {}
        self._carried: set[tuple[str | int, ...]] = set()
        """Paths outside of `model_list` whose values are in gateway.yaml."""
        settings = text.get("litellm_settings")
        if isinstance(settings, dict) and settings.get("api_base"):
            self._shared = {"api_base": settings["api_base"]}
            self._carried.add(("litellm_settings", "api_base"))

    def read(self) -> Found:
        for index, model in enumerate(self._text["model_list"]):
            self._add(model, index)
        found = self._found
        found.aliases = {name: names for name, names in found.aliases.items() if names != [name]}
        for key in self._text:
            if key != "model_list":
                self._note_all((key,))
        return found

    def _add(self, model: Any, index: int) -> None:
        place = ("model_list", index)
        params = model.get("litellm_params") if isinstance(model, dict) else None
        if not isinstance(params, dict) or not isinstance(params.get("model"), str) or not model.get("model_name"):
            self._note(place, "needs `model_name` and `litellm_params.model`; it is left out")
            return
        alias, info = str(model["model_name"]), model.get("model_info")
        if "*" in alias or "*" in params["model"]:
            self._note(place, "names with `*` are not taken over; list the models")
            return
        try:
            merged = self._merged(params)
            each = Model(alias, merged, info if isinstance(info, dict) else {}, self._variables)
            name = _free(_UNFIT.sub("-", alias), {entry.values["name"] for entry in self._found.entries})
            secret = next((merged[key] for key in SECRETS if merged.get(key) not in (None, "")), None)
            values = each.backend(name, self._variable(name, secret))
        except LeftOut as reason:
            self._note(place, f"is left out: {reason}")
            return
        lacks_region = values["kind"] == "bedrock" and "region" not in values
        self._found.entries.append(Entry(values, "add `region`, e.g. us-east-1" if lacks_region else ""))
        self._found.aliases.setdefault(alias, []).append(name)
        for remark in each.remarks:
            self._note(place, remark)
        self._note_dropped(place, model, each.used)
        for key in merged:
            if key not in params and ("litellm_params", key) not in each.used:
                self._note(place, f"{key} of its credential is not taken over")

    def _merged(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a model, together with the parameters of the credential that the model names. Raises
        LeftOut if the config does not have this credential."""
        name, listed = params.get("litellm_credential_name"), self._text.get("credential_list")
        if name is None:
            return {**self._shared, **params}
        for index, each in enumerate(listed if isinstance(listed, list) else ()):
            values = each.get("credential_values") if isinstance(each, dict) else None
            if isinstance(values, dict) and each.get("credential_name") == name:
                at = ("credential_list", index)
                self._carried |= {(*at, "credential_name"), *((*at, "credential_values", key) for key in values)}
                return {**self._shared, **values, **params}
        raise LeftOut(f"`credential_list` has no {name!r}")

    def _variable(self, name: str, secret: Any) -> str:
        """The name of the environment variable for a key of the backend `name`. Only equal keys get the same
        variable."""
        words = "KEY_OF_" + re.sub(r"[^A-Z0-9]+", "_", name.upper())
        return self._secrets.setdefault(
            f"{secret!r} {name if secret is None else ''}", _free(words, {*self._secrets.values()})
        )

    def _note_dropped(self, place: tuple[str | int, ...], model: Mapping[str, Any], used: set[tuple[str, str]]) -> None:
        """Add a note for each key of a model that was not taken over into the model's backend. `place`: path of the
        model in the file. `used`: (section, key) of each key that was taken over."""
        for section, values in model.items():
            if section == "model_name":
                continue
            if section not in ("litellm_params", "model_info") or not isinstance(values, dict):
                self._note_all((*place, section))
                continue
            for key in values:
                if (section, key) not in used and key != "litellm_credential_name":
                    self._note_all((*place, section, key))

    def _note_all(self, path: tuple[str | int, ...]) -> None:
        """Add a note, with its line, for each value below `path`."""
        for each in islice(_leaves(_at(self._text, path), path), MOST_NOTES):
            if each not in self._carried:
                advice = next((_ADVICE[step] for step in each if step in _ADVICE), "")
                self._note(each, "is not taken over" + (advice and f"; {advice}"))

    def _note(self, path: tuple[str | int, ...], remark: str) -> None:
        shown = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
        self._found.notes.append(f"{self._file}:{_line(self._root, *path)}: {shown}: {remark}")


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _leaves(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of each value inside `value`. Mappings and lists of mappings are not yielded themselves, only
    their values."""
    if isinstance(value, dict) and value and len(path) < MOST_STEPS:
        for key, each in value.items():
            yield from _leaves(each, (*path, key))
    elif isinstance(value, list) and len(path) < MOST_STEPS and any(isinstance(each, dict) for each in value):
        for index, each in enumerate(value):
            yield from _leaves(each, (*path, index))
    else:
        yield path


def _free(name: str, taken: set[str]) -> str:
    name = name.lstrip("-._:/") or "model"
    joint = "_" if name.startswith("KEY_OF_") else "-"
    numbers = (f"{name}{joint}{number}" for number in range(2, 10_000))
    return name if name not in taken else next(each for each in numbers if each not in taken)


def _line(node: Any, *path: str | int) -> int:
    """The line of the key or list item at `path`. If the file does not contain the whole path, the line of its last
    part that exists."""
    line = 1
    for step in path:
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == str(step)), None)
            if pair is None:
                return line
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
    return line
