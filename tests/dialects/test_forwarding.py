from __future__ import annotations

import tracemalloc
from typing import Any

import orjson
import pytest

from gateway.dialects.requests.forwarding import check_forwarding
from gateway.domain.policy import Policy
from gateway.domain.request import CompletionRequest, DialectName
from gateway.errors import BadRequest, Forbidden
from tests.support.requests import body_in, request_in

DIALECTS: dict[str, DialectName] = {
    "chat": "openai_chat",
    "responses": "openai_responses",
    "messages": "anthropic_messages",
}
MCP = {"type": "mcp", "server_label": "s", "server_url": "https://elsewhere.test/mcp"}


def request(dialect: str, raw: bytes | None = None, **fields: Any) -> CompletionRequest:
    return request_in(DIALECTS[dialect], raw=raw, **fields)


def policy(**fields: Any) -> Policy:
    return Policy(team="search", **fields)


def message(*blocks: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(blocks)}]}


def refused(asked: CompletionRequest, **fields: Any) -> tuple[str | None, str]:
    with pytest.raises(Forbidden) as caught:
        check_forwarding(asked, policy(**fields))
    return caught.value.param, caught.value.message


NAMED: list[tuple[str, dict[str, Any], str, str]] = [
    ("responses", {"tools": [MCP]}, "tools[0]", "mcp"),
    ("responses", {"tools": [{**MCP, "server_url": None, "connector_id": "connector_gmail"}]}, "tools[0]", "mcp"),
    ("responses", {"input": [{"type": "additional_tools", "tools": [MCP]}]}, "input[0].tools[0]", "mcp"),
    ("chat", {"tools": [{"type": "x", "deep": {"server_url": "https://a"}}]}, "tools[0].deep.server_url", "mcp"),
    ("chat", {"data_sources": [{"type": "azure_search"}]}, "data_sources", "mcp"),
    ("messages", {"mcp_servers": [{"type": "url", "url": "https://a", "name": "n"}]}, "mcp_servers", "mcp"),
    (
        "chat",
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}]},
        "messages[0].content[0].file.file_id",
        "files",
    ),
    (
        "messages",
        message({"type": "document", "source": {"type": "file", "file_id": "file_1"}}),
        "messages[0].content[0].source.file_id",
        "files",
    ),
    (
        "messages",
        message(
            {
                "type": "tool_result",
                "tool_use_id": "t",
                "content": [{"type": "image", "source": {"type": "file", "file_id": "file_1"}}],
            }
        ),
        "messages[0].content[0].content[0].source.file_id",
        "files",
    ),
    (
        "responses",
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]},
        "input[0].content[0].file_id",
        "files",
    ),
    (
        "responses",
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-1"]}}]},
        "tools[0].container.file_ids",
        "files",
    ),
    (
        "responses",
        {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]},
        "tools[0].vector_store_ids",
        "stores",
    ),
    ("responses", {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}, "tools[0].container", "stores"),
    (
        "responses",
        {"input": [{"type": "code_interpreter_call", "container_id": "cntr_1"}, {"role": "user", "content": "?"}]},
        "input[0].container_id",
        "stores",
    ),
    (
        "responses",
        {"input": [{"type": "image_generation_call", "id": "ig_1"}, {"role": "user", "content": "?"}]},
        "input[0]",
        "stores",
    ),
    ("messages", {"container": "container_1"}, "container", "stores"),
    (
        "messages",
        {"container": {"skills": [{"type": "custom", "skill_id": "skill_1"}]}},
        "container.skills[0].skill_id",
        "stores",
    ),
    ("chat", {"previous_response_id": "resp_1"}, "previous_response_id", "stores"),
    ("chat", {"conversation": "conv_1"}, "conversation", "stores"),
    ("chat", {"extra_body": {"google": {"cached_content": "c"}}}, "extra_body.google.cached_content", "stores"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "fields", "where", "what"), NAMED)
def test_what_a_provider_would_look_up_is_refused_by_place_and_key_until_the_policy_opens_it(
    dialect: str, fields: dict[str, Any], where: str, what: str
) -> None:
    asked = request(dialect, **fields)
    param, told = refused(asked)
    assert param == where
    assert f"data.forward: [{what}]" in told
    check_forwarding(asked, policy(data={"forward": [what, "files"]}))


@pytest.mark.parametrize(("dialect", "fields", "where", "what"), NAMED)
def test_names_spelled_with_escapes_are_refused_as_well(
    dialect: str, fields: dict[str, Any], where: str, what: str
) -> None:
    raw = body_in(DIALECTS[dialect], **fields)
    for plain, escaped in (
        (b"server_url", rb"serv\u0065r_url"), (b"connector_id", rb"connector\u005fid"), (b"file_id", rb"fil\u0065_id"),
        (b"vector_store", rb"vec\u0074or_store"), (b'"container', rb'"\u0063ontainer'),
        (b"skill_id", rb"skil\u006C_id"),
        (b"image_generation_call", rb"image_g\u0065neration_call"),
        (b"mcp_servers", rb"mcp\u005Fservers"),
        (b'"mcp"', rb'"m\u0063p"'), (b"previous_response_id", rb"previous\u005fresponse_id"),
        (b"cached_content", rb"cach\u0065d_content"), (b"conversation", rb"conv\u0065rsation"),
        (b"data_sources", rb"data\u005fsources"),
    ):  # fmt: skip
        raw = raw.replace(plain, escaped)
    assert refused(request(dialect, raw))[0] == where


HARMLESS: list[tuple[str, dict[str, Any]]] = [
    ("chat", {"service_tier": "auto", "store": False, "never_heard_of": {"a": 1}}),
    ("chat", {"service_tier": "priority", "store": None}),
    ("messages", {"speed": "fast", "inference_geo": "us", "service_tier": "standard_only"}),
    ("responses", {"previous_response_id": "resp_1"}),
    ("responses", {"tools": [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]}),
    ("messages", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    ("messages", {"container": {"skills": [{"type": "anthropic", "skill_id": "pptx"}]}}),
    ("messages", {"container": None}),
    (
        "chat",
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"file_id": {}}}}}]},
    ),
    ("messages", {"tools": [{"name": "f", "input_schema": {"properties": {"server_url": {"type": "string"}}}}]}),
    ("messages", message({"type": "tool_use", "id": "t", "name": "f", "input": {"file_id": "x"}}, role="assistant")),
    ("messages", message({"type": "text", "text": 'the "container" and the file_id, \\u0061'})),
    (
        "responses",
        {
            "input": [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "output_text", "text": "", "annotations": [{"type": "file_path", "file_id": "f"}]}
                    ],
                },
                {"role": "user", "content": [{"type": "input_image", "file_id": None, "image_url": "data:,"}]},
            ]
        },
    ),
]


@pytest.mark.parametrize(("dialect", "fields"), HARMLESS)
def test_what_names_nothing_of_anybody_goes_on(dialect: str, fields: dict[str, Any]) -> None:
    check_forwarding(request(dialect, **fields), policy())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_storing_is_refused_where_the_team_may_not_store(dialect: str) -> None:
    param, told = refused(request(dialect, store=True))
    assert (param, "data.store_prompts" in told) == ("store", True)
    check_forwarding(request(dialect, store=True), policy(data={"store_prompts": True}))


def test_a_key_given_twice_hides_nothing() -> None:
    for raw in (
        b'{"model":"m","store":true,"store":false,"messages":[{"role":"user","content":"hello"}]}',
        b'{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f","file_id":null}}]}]}',
    ):
        with pytest.raises(BadRequest, match="twice"):
            check_forwarding(request("chat", raw), policy())
    tools = b'[{"type":"web_search","type":"function"}]'
    twice = b'{"model":"m","tools":%b,"messages":[{"role":"user","content":"hello"}]}' % tools
    with pytest.raises(BadRequest, match="twice"):
        check_forwarding(request("chat", twice), policy(data={"server_tools": "forbidden"}))


@pytest.mark.parametrize("field", ["model", "max_tokens", "max_completion_tokens", "n"])
def test_a_field_that_decides_the_cost_is_refused_if_it_stands_twice(field: str) -> None:
    said = b'"messages":[{"role":"user","content":"hello"}]'
    for first, second in ((b'"m"', b'"m2"'),) if field == "model" else ((b"90", b"5"), (b"5", b"90")):
        name = field.encode()
        model = b"" if field == "model" else b'"model":"m",'
        raw = b'{%b"%b":%b,%b,"%b" : %b}' % (model, name, first, said, name, second)
        with pytest.raises(BadRequest, match=f"the key {field} twice"):
            check_forwarding(request("chat", raw), policy())


def test_a_tool_may_have_parameters_with_the_names_of_such_fields() -> None:
    schema = b'{"type":"object","properties":{"model":{"type":"string"},"n":{"type":"number"},"max_tokens":{}}}'
    tools = b'[{"type":"function","function":{"name":"f","parameters":%b}}]' % schema
    raw = b'{"tools":%b,"model":"m","n":1,"max_tokens":5,"messages":[{"role":"user","content":"hello"}]}' % tools
    check_forwarding(request("chat", raw), policy())


def test_tiers_that_the_policy_does_not_name_are_refused() -> None:
    limits = {"service_tiers": ["flex"]}
    for fields in ({"service_tier": "auto"}, {"service_tier": "default"}, {"service_tier": "flex"}):
        check_forwarding(request("chat", **fields), policy(limits=limits))
    assert refused(request("chat", service_tier="priority"), limits=limits)[0] == "service_tier"
    param, told = refused(request("messages", speed="fast"), limits=limits)
    assert (param, "limits.service_tiers" in told) == ("speed", True)


def test_another_place_of_processing_than_the_policys_regions_is_refused() -> None:
    for place in ("us", "global", 7):
        param, told = refused(request("messages", inference_geo=place), data={"regions": ["eu"]})
        assert (param, "data.regions" in told) == ("inference_geo", True)
    check_forwarding(request("messages", inference_geo="US"), policy(data={"regions": ["us"]}))


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ({"hosted": "forbidden"}, "data.hosted"),
        ({"hosted": "forbidden", "server_tools": "allowed"}, "data.hosted"),
        ({"regions": ["eu"]}, "data.regions"),
        ({"server_tools": "forbidden"}, "data.server_tools"),
    ],
)
def test_tools_that_a_provider_runs_are_refused_where_the_policy_says_no(data: dict[str, Any], key: str) -> None:
    for dialect, fields, where in (
        ("responses", {"tools": [{"type": "function", "name": "f"}, {"type": "code_interpreter"}]}, "tools[1]"),
        ("responses", {"tools": [{"type": "web_search"}]}, "tools[0]"),
        ("messages", {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}, "tools[0]"),
        ("chat", {"web_search_options": {"a": 1}}, "web_search_options"),
        ("responses", {"input": [{"type": "additional_tools", "tools": [{"type": "x_search"}]}]}, "input[0].tools[0]"),
    ):
        param, told = refused(request(dialect, **fields), data=data)
        assert (param, key in told) == (where, True)
    own = [
        {"type": "shell", "environment": {"type": "local"}},
        {"type": "custom", "name": "c"},
        {"type": "bash_20250124"},
    ]
    check_forwarding(request("responses", tools=own), policy(data=data))


@pytest.mark.parametrize(
    ("dialect", "search"),
    [
        ("responses", {"type": "web_search"}),
        ("messages", {"type": "web_search_20250305", "name": "web_search"}),
    ],
)
def test_searches_that_agents_always_offer_are_taken_out_where_the_model_is_free(
    dialect: str, search: dict[str, Any]
) -> None:
    own = {"type": "custom", "name": "edit"}
    asked = request(dialect, tools=[search, own])
    check_forwarding(asked, policy(data={"hosted": "forbidden"}))
    assert asked.body["tools"] == orjson.loads(asked.raw)["tools"] == [own]
    forced = {"type": "tool", "name": "web_search"} if dialect == "messages" else "required"
    assert (
        refused(request(dialect, tools=[search, own], tool_choice=forced), data={"hosted": "forbidden"})[0]
        == "tools[0]"
    )


def test_regions_leave_tools_to_a_policy_that_allows_them() -> None:
    allowed = policy(data={"regions": ["eu"], "server_tools": "allowed"})
    check_forwarding(request("responses", tools=[{"type": "web_search"}]), allowed)


def test_servers_that_a_provider_would_call_are_refused_where_prompts_may_not_leave() -> None:
    param, told = refused(request("responses", tools=[MCP]), data={"hosted": "forbidden", "forward": ["mcp"]})
    assert (param, "data.hosted" in told) == ("tools[0]", True)


def test_a_long_key_around_many_values_is_not_copied_for_each_of_them() -> None:
    """Such a body of 20 MiB would take the memory of the machine."""
    asked = request("chat", store=False, **{"k" * 100_000: [{}] * 2000})
    tracemalloc.start()
    try:
        check_forwarding(asked, policy())
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 10 * 2**20


def test_a_long_key_is_shown_only_in_part() -> None:
    where, _ = refused(request("chat", **{"k" * 100_000: [{"file_id": "file-1"}]}))
    assert where == f"{'k' * 64}[0].file_id"
