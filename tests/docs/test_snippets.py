"""Every snippet in the documents: Python gets answers from a real gateway, YAML, JSON and TOML are valid files."""

from __future__ import annotations

import ast
import asyncio
import gc
import tomllib
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import orjson
import pytest
from _pytest.mark import ParameterSet

from gateway.dialects.clients import PATHS
from gateway.policy.load import load_policies
from gateway.settings.files import parse
from gateway.settings.gateway import Ceilings, GatewayConfig
from gateway.settings.renamed_keys import OldName
from tests.docs.markdown import DOCS, EXECUTED, README, ROOT, Fence, executed, fences
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Provider

BASE = "http://127.0.0.1:8080"
CLIENTS = ROOT / "docs" / "how-to" / "clients.md"
FOREIGN = ("# ~/.continue/", "# yaml-language-server:")
"""First lines of YAML that is not the gateway's."""


def all_of(language: str) -> list[ParameterSet]:
    """(page, fence) as test parameters."""
    return [
        pytest.param(page, fence, id=f"{page.relative_to(ROOT)}:{fence.line}")
        for page in EXECUTED
        for fence in fences(page, language)
    ]


def programs(page: Path) -> list[str]:
    """Those of the clients' page have tests of their own."""
    return [] if page == CLIENTS else [fence.text for fence in fences(page, "python")]


PROGRAMS = [
    pytest.param(text, id=f"{page}: {number}") for number, (text, page) in enumerate(executed(programs).items())
]


def snippet(word: str) -> str:
    """The only one of the clients' page with `word`."""
    (found,) = [fence.text for fence in fences(CLIENTS, "python") if word in fence.text]
    return found


async def printed(gateway: GatewayProcess, program: str) -> str:
    """What `program` prints when it asks this gateway."""
    assert BASE in program
    code = compile(program.replace(BASE, gateway.base), "<document>", "exec")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as output:
        patch.setenv("THRIFTGATE_KEY", await gateway.key("search"))
        with warnings.catch_warnings():
            # A program may leave its client open at its end. Without this, the warning would fail a later test.
            warnings.simplefilter("ignore", ResourceWarning)
            await asyncio.to_thread(exec, code, {"__name__": "__main__"})
            gc.collect()
    return output.getvalue()


@pytest.mark.heavy
@pytest.mark.parametrize("program", PROGRAMS)
async def test_every_program_gets_answers(
    program: str, gateway: GatewayProcess, small: Provider, embedder: Provider
) -> None:
    assert (await printed(gateway, program)).strip()


@pytest.mark.heavy
async def test_the_openai_snippet_prints_the_same_plain_and_streamed(gateway: GatewayProcess, small: Provider) -> None:
    plain, told, streamed = (await printed(gateway, snippet("with_raw_response"))).split("\n", 2)
    assert plain == streamed != ""
    assert told.split()[0] in ("miss", "exact")  # another test may have asked the same


@pytest.mark.heavy
async def test_responses_and_embeddings_come_from_their_backends(
    gateway: GatewayProcess, small: Provider, embedder: Provider
) -> None:
    said, vectors = (await printed(gateway, snippet("client.responses"))).splitlines()
    assert said == small.last.text_sent
    assert vectors.startswith("2 vectors of ")
    assert embedder.last.path == "/v1/embeddings"


@pytest.mark.heavy
async def test_the_anthropic_snippet_prints_the_same_plain_and_streamed(
    gateway: GatewayProcess, small: Provider
) -> None:
    plain, streamed = (await printed(gateway, snippet("client.messages.stream"))).split("\n", 1)
    assert plain == streamed != ""


def test_the_langchain_snippet_names_address_key_and_model() -> None:
    """LangChain is no dependency, so it is only read."""
    calls = [node for node in ast.walk(ast.parse(snippet("langchain"))) if isinstance(node, ast.Call)]
    (made,) = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "ChatOpenAI"]
    given = {word.arg: word.value for word in made.keywords}
    assert given.keys() == {"base_url", "api_key", "model"}
    assert ast.literal_eval(given["base_url"]) == f"{BASE}/v1"


@pytest.mark.parametrize(("page", "fence"), all_of("toml"))
def test_codex_is_sent_to_a_path_that_exists(page: Path, fence: Fence) -> None:
    told = tomllib.loads(fence.text)
    provider = told["model_providers"][told["model_provider"]]
    assert provider["base_url"] == f"{BASE}/v1"
    assert f"/v1/{provider['wire_api']}" in PATHS


@pytest.mark.parametrize(("page", "fence"), all_of("yaml"))
def test_every_yaml_example_is_a_valid_file(page: Path, fence: Fence, tmp_path: Path) -> None:
    first, name = fence.text.partition("\n")[0], str(page.relative_to(ROOT))
    if first.startswith(FOREIGN):
        return
    if first == "# gateway.yaml":
        old_names: list[OldName] = []
        parse(fence.text, GatewayConfig, name, on_old_name=old_names.append)
        assert old_names == []
        return
    (tmp_path / "policy.yaml").write_text(fence.text, encoding="utf-8")
    found = load_policies([tmp_path], Ceilings())
    assert not found.old_names
    teams = found.files[tmp_path / "policy.yaml"]
    assert len(teams) > 1 or first == f"# policies/{next(iter(teams))}.yaml"


@pytest.mark.parametrize(("page", "fence"), all_of("json"))
def test_every_json_example_can_be_read(page: Path, fence: Fence) -> None:
    orjson.loads(fence.text)


def test_every_language_of_a_fence_is_tested() -> None:
    told = {(fence.language, str(page.relative_to(ROOT))) for page in (README, *DOCS) for fence in fences(page)}
    tested = ("console", "python", "toml", "yaml", "json", "sh", "text", "")
    assert not [each for each in told if each[0] not in tested]
