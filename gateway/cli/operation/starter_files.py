"""Writes a first gateway.yaml and a team's policy. The files are valid, and each line has an explanation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gateway.domain.backend import Backend
from gateway.domain.kinds import KINDS
from gateway.settings.environment import PROVIDER_KEYS

_KEY_OF_HOST = {"api.openai.com": "OPENAI_API_KEY", "api.anthropic.com": "ANTHROPIC_API_KEY"}

HEAD = """\
# The operator's file. `thriftgate check` validates it; docs/reference/gateway-yaml.md lists all keys.
# A changed file takes effect with `kill -USR2 PID`; `thriftgate status` shows the process id.
"""

_MEANINGS = {
    "kind": "vendor, cloud or API",
    "model": "its name at the provider or server",
    "deployment": "Azure: the name of the deployment",
    "api_version": "Azure: the version of the API",
    "base_url": "where requests are sent",
    "api_key": "the variable with the key; the file has no secret",
    "bearer_token": "Azure: the variable with a token of Microsoft Entra",
    "auth": "Azure: request tokens from Microsoft Entra",
    "client_secret": "Azure: the variable with the application's secret",
    "timeout": "maximum duration of a call",
    "max_parallel_requests": "maximum calls at a time",
    "region": "where its machines are",
    "strength": "small or large: the tier of a backend on your own machines",
    "context_window": "maximum tokens of prompt and answer",
    "max_output_tokens": "maximum tokens of an answer",
    "price": "USD per 1M tokens, or per hour of the machine",
    "dialects": "the APIs that it answers",
    "only_named": "not for `auto`; only its own name leads to it",
}
"""Key of a backend → its meaning, for the first line that has the key."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One backend as it is written to the file: its keys with their values, and a comment."""

    values: Mapping[str, Any]
    comment: str = ""


@dataclass(slots=True)
class Found:
    """The data for a first configuration, such as the backends that were found."""

    entries: list[Entry]
    aliases: dict[str, list[str]] = field(default_factory=dict)
    """Name that applications use → names of the backends."""
    notes: list[str] = field(default_factory=list)
    """Settings in another gateway's file that were not taken over, with their lines."""


def entry(backend: Backend) -> Entry:
    """Convert a discovered backend to the form of gateway.yaml. A key is written as the name of its environment
    variable."""
    values: dict[str, Any] = {"name": backend.name, "kind": backend.kind, "model": backend.model}
    if backend.base_url and backend.base_url != KINDS[backend.kind].base_url:
        values["base_url"] = backend.base_url
    if backend.api_key is not None and not KINDS[backend.kind].key:
        values["api_key"] = f"env:{_variable(backend)}"
    if backend.hosted:
        return Entry(values, "price and context window are in the packaged list")
    values["strength"] = "small" if backend.tier == "small" else "large"
    if backend.window_tokens:
        values["context_window"] = backend.window_tokens
    if backend.price is None:
        return Entry(values, "its price is unknown; e.g. price: {machine_hour_usd: 1.20}")
    values["price"] = backend.price.model_dump(
        mode="json", include={"machine_hour_usd", "tokens_per_second", "billing"}
    )
    return Entry(values, "strength and price are assumed: USD per hour in which it answers")


def _variable(backend: Backend) -> str:
    for host, name in _KEY_OF_HOST.items():
        if host in backend.base_url:
            return name
    provider = backend.name.partition("/")[0]
    return PROVIDER_KEYS.get(provider, f"{provider.upper().replace('-', '_')}_API_KEY")


def gateway_yaml(entries: Sequence[Entry]) -> str:
    """Make the text of gateway.yaml."""
    lines = [HEAD, "backends:                     # one model at one address each; docs/how-to/providers.md"]
    explained: set[str] = set()
    lines += [f"  {line}" for each in entries for line in item(each, explained).splitlines()]
    return "\n".join(lines) + "\n"


def item(backend: Entry, explained: set[str] | None = None) -> str:
    """Format a backend as an item of the list `backends`, without indentation.

    `explained`: the keys that already have a comment in the file. Only other keys get a comment, and are then added to
    `explained`. None: no key gets a comment.
    """
    (name, value), *rest = backend.values.items()
    first = f"- {name}: {_scalar(value)}{'   # ' + backend.comment if backend.comment else ''}"
    return "\n".join([first, *(_explained(f"  {key}: {_scalar(value)}", key, explained) for key, value in rest)])


def _explained(line: str, key: str, explained: set[str] | None) -> str:
    if explained is None or key in explained or key not in _MEANINGS:
        return line
    explained.add(key)
    return f"{line.ljust(28)}  # {_MEANINGS[key]}"


def flow_item(backend: Entry) -> str:
    """Format a backend in flow style, without its comment."""
    return f"{{{', '.join(f'{key}: {_scalar(value)}' for key, value in backend.values.items())}}}"


def policy_yaml(
    team: str,
    *,
    budget_usd: str | None,
    notify: Sequence[Mapping[str, str]],
    aliases: Mapping[str, Sequence[str]],
    extends: str | None = None,
) -> str:
    """Make the text of policies/TEAM.yaml. `notify`: receivers such as `{"slack": "env:NAME"}`. `extends`: the base
    policy, which sets the models and the cache."""
    lines = [
        f"# The rules of team {team}. A change takes effect within a second.",
        "# docs/reference/policy-yaml.md lists all keys.",
        f"team: {_scalar(team)}",
    ]
    lines += [f"extends: {_scalar(extends)}"] if extends else _rules(aliases)
    if budget_usd is not None:
        lines += [
            "budget:",
            f"  limit_usd: {budget_usd}",
            "  period: month                 # calendar month, UTC unless `timezone` is set",
            "  alerts: [50%, 80%, 100%, forecast]",
        ]
        if notify:
            receivers = ", ".join(f"{{{kind}: {_scalar(target)}}}" for each in notify for kind, target in each.items())
            lines.append(f"  notify: [{receivers}]")
        lines.append("  on_exhausted: refuse          # or free_only: cached answers and free backends still serve")
    return "\n".join(lines) + "\n"


def _rules(aliases: Mapping[str, Sequence[str]]) -> list[str]:
    models = [
        f"  {_scalar(name)}: {_scalar(names[0]) if len(names) == 1 else _list(names)}"
        for name, names in aliases.items()
    ]
    return [
        "models:",
        "  auto: {quality: 95%}          # the cheapest backend that is expected to do for 95 % of the answers",
        *models,
        "cache:",
        "  ttl: 24h                      # how long an answer may be reused, within this team only",
        "  semantic: {enabled: true, max_error: 1%}   # also for the same question in other words",
    ]


def write_new(path: Path, text: str) -> None:
    """Write a file that must not exist yet. Raises FileExistsError, OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


def _scalar(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_scalar(key)}: {_scalar(each)}' for key, each in value.items())}}}"
    if isinstance(value, str):
        return value if _is_plain(value) else orjson.dumps(value).decode()
    return orjson.dumps(value).decode()


def _list(names: Iterable[str]) -> str:
    return f"[{', '.join(map(_scalar, names))}]"


def _is_plain(text: str) -> bool:
    """Whether `text` needs no quotes in YAML, so that YAML reads it back as the same string."""
    return (
        text.replace("-", "").replace("_", "").isalnum()
        and text[0].isalpha()
        and text.isascii()
        and (text.lower() not in ("true", "false", "null", "yes", "no", "on", "off", "none", "y", "n"))
    )
