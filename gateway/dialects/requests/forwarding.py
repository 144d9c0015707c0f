"""Decides whether a request may be forwarded although it contains references to data or servers outside of it, or tools
that the provider runs.

All teams share one account at each provider. Files, vector stores, containers and stored responses in this account
belong to no team, so a team that knows or guesses an id could read the data of another team. If a request contains the
URL of a remote server, the provider sends the prompt to that server. A policy's `data.forward` permits each kind of
reference separately.

Most requests contain no such reference. References in top-level fields are found in the parsed body. For nested fields,
the bytes are first searched for the names of these fields, and for escape sequences that could spell one of these
names. If the search finds nothing, the parsed body is not searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from json import JSONDecoder  # noqa: TID251 - if a key occurs twice, orjson keeps one of both without an error
from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.dialects.answers.service_tiers import normalised
from gateway.domain.body_scan import UNSIGNED, WORDS, has_escaped_letter
from gateway.domain.policy import DataPolicy, Forwarded, Policy
from gateway.domain.prompt_cache import CACHE_FIELDS
from gateway.domain.request import CompletionRequest
from gateway.errors import BadRequest, Forbidden

_TIERS = ("service_tier", "speed")
_GEO = "inference_geo"
_ADDRESSES = frozenset({"server_url", "connector_id", "mcp_servers", "data_sources"})
_FILES = frozenset({"file_id", "file_ids"})
_STORES = frozenset(
    {
        *("vector_store_id", "vector_store_ids", "collection_ids", "skill_id", "container", "container_id"),
        *("conversation", "conversation_id", "previous_response_id", "cached_content", "cachedContent"),
    }
)
_WORDS: dict[str, Forwarded] = {
    **dict.fromkeys(_ADDRESSES, "mcp"),
    **dict.fromkeys(_FILES, "files"),
    **dict.fromkeys(_STORES, "stores"),
}
"""Name of a field → the value of `data.forward` that permits the field."""
_SEARCHES = frozenset({"web_search_options", "search_parameters", "plugins"})
"""Names of the fields, other than `tools`, that make a provider search the web."""
_OFFERS = _SEARCHES | {"tools"}
_PAID = {
    name: b'"%b"' % name.encode()
    for name in ("model", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of")
}
"""Names of top-level fields that decide what a call costs → the quoted name. The gateway reads the last value of a
duplicate key, but a backend may read the first."""
_NODES = frozenset({dict, list})
_Place = tuple[Any, str | int] | None
"""The place of a value in the body: the place of the object or array around it, and its key or index. None: the body.
It is written as text only for an error, because a body may have a key of megabytes around thousands of values."""
_MOST_NAME = 64
"""Maximum number of characters of a key that are shown in an error."""
_TOP = frozenset({"store", *_TIERS, _GEO, *_WORDS, "tool_resources", "extra_body"})
_OPAQUE = frozenset(
    {
        *("parameters", "input_schema", "input_examples", "output_schema", "schema", "json_schema", "arguments"),
        *("properties", "metadata", "client_metadata", "annotations", "citations", "results"),
    }
)
"""Names of fields whose contents cause no action at a provider: schemas, arguments of the client's own tools, metadata,
and earlier output."""
_REPORTS = ("code_execution_output", "tool_use")
"""Suffixes of the types of blocks that report an earlier result. The result is a file that was created, or the
arguments of a tool call."""
_ALWAYS = frozenset({b"file_id", b'"container'})
_NESTED = WORDS - {*CACHE_FIELDS, b'"cache_control"', b'"thinking_blocks"', b'"extra_content"', UNSIGNED.encode()}
"""The words that are searched for in requests with tools. In requests without tools, only the words in `_ALWAYS` are
searched for."""
_REMOVABLE = ("web_search", "web_fetch", "image_generation")
"""Prefixes of the types of provider tools that are removed if the request has other tools."""
_CLIENTS = (
    *("function", "custom", "namespace", "computer", "bash", "text_editor", "memory", "local_shell", "apply_patch"),
    "tool_search",
)
"""Prefixes of the types of tools that the client runs. The list also contains `tool_search`, which only selects among
such tools."""


def check_forwarding(request: CompletionRequest, policy: Policy) -> None:
    """Reject the request if the team's policy forbids its references or tools. Some tools are removed instead. Call
    this before stored responses are inserted. Raises Forbidden with field and policy key, BadRequest for a duplicate
    key."""
    _check_paid(request)
    offers = not _OFFERS.isdisjoint(request.body) or request.dialect == "openai_responses"
    if not _TOP.isdisjoint(request.body) or _mentioned(request, offers):
        _check_named(request, policy)
    if offers and (key := policy.data.closes_server_tools):
        _close_tools(request, key)


def _mentioned(request: CompletionRequest, offers: bool) -> bool:
    """Whether the bytes of the request may name a nested field that must be checked. `offers`: whether the request has
    tools or web searches."""
    raw, words = request.raw, _NESTED if offers else _ALWAYS
    if request.scan is not None and (scan := request.known_scan) is not None:
        return scan.escaped_letter or not words.isdisjoint(scan.words)
    return max(map(raw.rfind, words)) >= 0 or has_escaped_letter(raw)


def _check_named(request: CompletionRequest, policy: Policy) -> None:
    body, data = request.body, policy.data
    if body.get("store") not in (None, False) and not data.store_prompts:
        raise Forbidden(
            "store: nothing may be stored for this team; leave store out or send false, or have data.store_prompts set "
            "in its policy.",
            param="store",
        )
    _check_tier(request, policy)
    _check_references(request, data)
    _check_once(request)


def _check_references(request: CompletionRequest, data: DataPolicy) -> None:
    """Check all references in the body. If an earlier check of a body with the same beginning found no reference,
    search only the rest."""
    continued, found = request.continued, list[tuple[_Place, Forwarded]]()
    rest = continued.rest if continued is not None and continued.earlier.no_references else None
    if rest is None or any(_found(request, orjson.loads(rest))):
        found = list(_found(request, request.body))
        for place, what in found:
            _check_one(place, what, data)
    if request.notes is not None:
        request.notes.no_references = not found


def _found(request: CompletionRequest, fields: dict[str, Any]) -> Iterator[tuple[_Place, Forwarded]]:
    if request.dialect == "openai_responses":  # here the id is the gateway's own id, which the provider never receives
        fields = {name: value for name, value in fields.items() if name != "previous_response_id"}
    return _named(fields)


def _check_once(request: CompletionRequest) -> None:
    """Raises BadRequest if an object in the body has a duplicate key."""
    continued = request.continued
    raw = continued.rest if continued is not None and continued.earlier.unique_keys else request.raw
    if not request.path or raw.lstrip().startswith(b"{"):  # a body that does not begin with a brace is a form
        _ONCE.decode(raw.decode())
    if request.notes is not None:
        request.notes.unique_keys = True


def _check_paid(request: CompletionRequest) -> None:
    """Raises BadRequest if a field in `_PAID` is duplicated. The known part of a continued body was checked before."""
    raw = request.raw if request.continued is None else request.continued.rest
    for name in _PAID.keys() & request.body:
        often = raw.find(_PAID[name]) < raw.rfind(_PAID[name])  # perhaps in a tool's schema
        if often and raw.lstrip().startswith(b"{") and len(json_splice.find(raw, name)) > 1:
            raise _duplicate(name)


def _duplicate(name: str) -> BadRequest:
    return BadRequest(f"An object of the body has the key {name} twice; send it once.", param=name)


def _read_once(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in names if names.count(name) > 1)[:_MOST_NAME]
        raise _duplicate(name)


_ONCE = JSONDecoder(object_pairs_hook=_read_once, parse_int=str, parse_float=str)


def _check_one(place: _Place, what: Forwarded, data: DataPolicy) -> None:
    if what == "mcp" and data.hosted == "forbidden":
        where = _written(place)
        raise Forbidden(
            f"{where} names a server that the prompt would be sent to, and data.hosted in this team's policy forbids "
            "that; leave it out.",
            param=where,
        )
    if what not in data.forward:
        where = _written(place)
        raise Forbidden(
            f"{where} names {_DESCRIPTIONS[what]}, which this team's requests may not do; leave it out, or have "
            f"data.forward: [{what}] set in its policy.",
            param=where,
        )


_DESCRIPTIONS: dict[Forwarded, str] = {
    "mcp": "a server that the provider would call",
    "files": "a file in the provider's account",
    "stores": "what is stored in the provider's account",
}


def _check_tier(request: CompletionRequest, policy: Policy) -> None:
    body, allowed, regions = request.body, policy.limits.service_tiers, policy.data.regions
    if allowed is not None:
        for name, tier in (
            ("service_tier", normalised(body.get("service_tier"))),
            ("speed", normalised(None, body.get("speed"))),
        ):
            if tier and tier not in allowed:
                raise Forbidden(
                    f"{name}: this team's requests may not ask for {tier}; leave {name} out, or have "
                    "limits.service_tiers changed in its policy.",
                    param=name,
                )
    geo = body.get(_GEO)
    if regions and geo is not None and not (type(geo) is str and geo.lower() in regions):
        raise Forbidden(
            f"{_GEO} is none of data.regions in this team's policy ({', '.join(regions)}); leave it out.", param=_GEO
        )


def _named(node: Any) -> Iterator[tuple[_Place, Forwarded]]:
    """Yield (location, required permission) of each reference to data or servers outside the request."""
    waiting: list[tuple[_Place, Any]] = [(None, node)]
    while waiting:
        place, node = waiting.pop()
        if type(node) is list:
            waiting += [((place, at), each) for at, each in enumerate(node) if type(each) in _NODES]
            continue
        kind = node.get("type")
        if kind == "mcp" or (kind == "image_generation_call" and not node.get("result")):
            yield place, "mcp" if kind == "mcp" else "stores"
        reports = type(kind) is str and kind.endswith(_REPORTS)
        for name in filter(_WORDS.__contains__, node):
            if not (reports and name in _FILES) and _names(name, node[name], node):
                yield (place, name), _WORDS[name]
        waiting += [
            ((place, name), value)
            for name, value in node.items()
            if type(value) in _NODES and name not in _OPAQUE and not (reports and name == "input")
        ]


def _written(place: _Place) -> str:
    """`place` as text, such as `messages[0].content[1].file_id`."""
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(f"[{step}]" if type(step) is int else f".{str(step)[:_MOST_NAME]}")
    return "".join(reversed(steps)).removeprefix(".")


def _names(name: str, value: Any, node: dict[str, Any]) -> bool:
    """Whether the field `name` of `node` is a reference. Empty values, requests for a new container, and Anthropic's
    own skills are not references."""
    if name == "container" and type(value) is dict:
        return value.get("id") is not None
    if name == "skill_id":
        return node.get("type") != "anthropic"
    return value is not None and value != [] and value != ""


def _close_tools(request: CompletionRequest, key: str) -> None:
    """Remove the optional web searches that coding agents add to every request. Raises Forbidden if the request still
    has a tool that a provider runs. `key`: the policy key that forbids such tools."""
    body = request.body
    _check_once(request)
    where = next((name for name in body if name in _SEARCHES and body[name]), None)
    if where is None:
        _drop_searches(request)
        where = next((place for tools, place in _offered(request.body) for place in _run_there(tools, place)), None)
    if where is not None:
        raise Forbidden(
            f"{where} is a tool that the provider runs, and {key} in this team's policy forbids those; leave it out"
            + (", or have data.server_tools: allowed set." if key == "data.regions" else "."),
            param=where,
        )


def _drop_searches(request: CompletionRequest) -> None:
    body, tools = request.body, request.body.get("tools")
    choice = body.get("tool_choice")
    if type(tools) is not list or (choice.get("type") if type(choice) is dict else choice) not in (
        None,
        "auto",
        "none",
    ):
        return
    kept = [tool for tool in tools if not (type(tool) is dict and str(tool.get("type")).startswith(_REMOVABLE))]
    if kept and len(kept) < len(tools):
        request.raw = json_splice.splice(request.raw, body, {"tools": orjson.dumps(kept)})
        request.body = {**body, "tools": kept}


def _offered(body: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    yield body.get("tools"), "tools"
    value = body.get("input")
    for place, item in enumerate(value) if type(value) is list else ():
        if type(item) is dict and "tools" in item:
            yield item["tools"], f"input[{place}].tools"


def _run_there(tools: Any, where: str) -> Iterator[str]:
    for place, tool in enumerate(tools) if type(tools) is list else ():
        kind = tool.get("type") if type(tool) is dict else None
        if type(kind) is not str or kind.startswith(_CLIENTS):
            continue
        local = tool.get("environment")
        if not (kind == "shell" and type(local) is dict and local.get("type") == "local"):
            yield f"{where}[{place}]"
