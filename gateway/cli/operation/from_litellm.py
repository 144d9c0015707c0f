"""Reads LiteLLM proxy's config.yaml. Models become backends and aliases; everything else is listed with its line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import yaml

from gateway.cli.operation.starter_files import Entry, Found
from gateway.domain.kinds import KINDS

_KINDS = {
    "openai": "openai",
    "text-completion-openai": "openai",
    "hosted_vllm": "openai",
    "openai_like": "openai",
    "custom_openai": "openai",
    "anthropic": "anthropic",
    "azure": "azure",
    "bedrock": "bedrock",
    "openrouter": "openrouter",
    "mistral": "mistral",
    "groq": "groq",
    "deepseek": "deepseek",
    "xai": "xai",
    "together_ai": "together",
    "ollama": "ollama",
    "ollama_chat": "ollama",
}
"""LiteLLM's prefix of a model's name → kind of backend. Other prefixes become `kind: litellm`."""
_ADDRESSES = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com/v1"}
_DEFAULT_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "azure": "AZURE_API_KEY"}
_READ = {"model", "api_base", "base_url", "api_key", "api_version", "aws_region_name", "aws_profile_name"}
_PRICES = {"input_cost_per_token": "input", "output_cost_per_token": "output"}
_UNFIT = re.compile(r"[^A-Za-z0-9._:/-]+")
_MORE = (
    ("api_version", "api_version", ("azure",)),
    ("aws_region_name", "region", ("bedrock",)),
    ("aws_profile_name", "aws_profile", ("bedrock",)),
)
"""(LiteLLM's key, key of a backend, kinds that have this key)."""
IN_FILE = "API_KEY_FROM_LITELLM"
"""The variable for a key that is written in the config. Secrets are not copied from file to file."""
MOST_BYTES = 2**20


def read(path: Path) -> Found:
    """Read the config. Raises ClickException if that is impossible."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise click.ClickException(f"{path}: is larger than 1 MiB; this is no LiteLLM config.")
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        text: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.ClickException(f"{path}: cannot be read: {str(error).splitlines()[0]}.") from error
    if not isinstance(text, dict) or not isinstance(text.get("model_list"), list):
        raise click.ClickException(f"{path}: has no `model_list`; this is no LiteLLM config.")
    found = Found([])
    for index, model in enumerate(text["model_list"]):
        _add(found, model, index, root, path.name)
    found.aliases = {name: names for name, names in found.aliases.items() if names != [name]}
    for key in text:
        if key != "model_list":
            found.notes.append(f"{path.name}:{_line(root, key)}: {key}: is not taken over")
    return found


def _add(found: Found, model: Any, index: int, root: Any, file: str) -> None:
    place = f"{file}:{_line(root, 'model_list', index)}: model_list[{index}]"
    params = model.get("litellm_params") if isinstance(model, dict) else None
    if not isinstance(params, dict) or not isinstance(params.get("model"), str) or not model.get("model_name"):
        found.notes.append(f"{place}: needs `model_name` and `litellm_params.model`; it is left out")
        return
    alias = str(model["model_name"])
    if "*" in alias or "*" in params["model"]:
        found.notes.append(f"{place}: names with `*` are not taken over; list the models")
        return
    info = model.get("model_info")
    base_model = _plain(info.get("base_model")) if isinstance(info, dict) else ""
    values = _values(params, alias, {each.values["name"] for each in found.entries}, base_model)
    lacks_region = values["kind"] == "bedrock" and "region" not in values
    found.entries.append(Entry(values, "add `region`, e.g. us-east-1" if lacks_region else ""))
    found.aliases.setdefault(alias, []).append(values["name"])
    if _is_secret(params.get("api_key")):
        found.notes.append(f"{place}: its key is not copied; export it as {IN_FILE}")
    for key in params:
        if key not in _READ and key not in _PRICES:
            line = _line(root, "model_list", index, "litellm_params", key)
            found.notes.append(f"{file}:{line}: litellm_params.{key}: is not taken over")


def _values(params: dict[str, Any], alias: str, taken: set[str], base_model: str) -> dict[str, Any]:
    """The backend for one model, as keys and values of gateway.yaml. `base_model`: on Azure, the model that the
    deployment runs."""
    prefix, _, rest = params["model"].partition("/")
    kind = _KINDS.get(prefix, "litellm") if rest else ("anthropic" if prefix.startswith("claude") else "openai")
    name = params["model"] if kind == "litellm" else rest or prefix
    values: dict[str, Any] = {"name": _free(_UNFIT.sub("-", alias), taken), "kind": kind, "model": name}
    if kind == "azure":
        values |= {"model": base_model or alias, "deployment": rest}
    if base := _plain(params.get("api_base") or params.get("base_url")) or _ADDRESSES.get(kind):
        values["base_url"] = f"{base.rstrip('/')}/v1" if kind == "ollama" and not base.endswith("/v1") else base
    key = _key(params.get("api_key")) or _DEFAULT_KEYS.get(kind)
    if key and key != KINDS[kind].key:
        values["api_key"] = f"env:{key}"
    for theirs, ours, kinds in _MORE:
        if kind in kinds and (value := _plain(params.get(theirs))):
            values[ours] = value
    prices = {ours: round(params[theirs] * 1e6, 6) for theirs, ours in _PRICES.items() if _is_price(params.get(theirs))}
    return values | ({"price": prices} if len(prices) == len(_PRICES) else {})


def _key(reference: Any) -> str:
    """The name of the variable that contains the key: NAME for `os.environ/NAME`, or IN_FILE if the config contains the
    key itself; empty if there is no key."""
    return IN_FILE if _is_secret(reference) else str(reference or "").removeprefix("os.environ/")


def _is_secret(reference: Any) -> bool:
    return isinstance(reference, str) and bool(reference) and not reference.startswith("os.environ/")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) and not value.startswith("os.environ/") else ""


def _is_price(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _free(name: str, taken: set[str]) -> str:
    name = name.lstrip("-._:/") or "model"
    numbers = (f"{name}-{number}" for number in range(2, 10_000))
    return name if name not in taken else next(each for each in numbers if each not in taken)


def _line(node: Any, *path: str | int) -> int:
    """The line of the key or list item at `path`; 1 if the file does not contain it."""
    line = 1
    for step in path:
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == step), None)
            if pair is None:
                return line
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
    return line
