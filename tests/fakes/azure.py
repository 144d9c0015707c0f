"""An Azure OpenAI resource on a real socket: checks address, api-version and credentials of each call, then answers.

Errors are Azure's own: 401 without a valid key or token, 404 for an unknown deployment or path, 400 for the content
filter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

import orjson

from tests.fakes.provider import Exchange, Provider
from tests.fakes.provider_play import Action

BELOW_DEPLOYMENTS = frozenset(
    {
        "/chat/completions",
        "/completions",
        "/embeddings",
        "/images/generations",
        "/audio/speech",
        "/audio/transcriptions",
    }
)
DENIED = {
    "error": {
        "code": "401",
        "message": "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid "
        "key for an active subscription and use a correct regional API endpoint for your resource.",
    }
}
NO_DEPLOYMENT = {
    "error": {
        "code": "DeploymentNotFound",
        "message": "The API deployment for this resource does not exist. If you created the deployment within the last "
        "5 minutes, please wait a moment and try again.",
    }
}
NO_RESOURCE = {"error": {"code": "404", "message": "Resource not found"}}
FILTERED = {
    "error": {
        "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy. "
        "Please modify your prompt and retry.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {
            "code": "ResponsibleAIPolicyViolation",
            "content_filter_result": {"hate": {"filtered": False, "severity": "safe"}},
        },
    }
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One call, as it came."""

    path: str
    query: dict[str, str]
    credentials: dict[str, str]
    """Headers that may authenticate, by name."""
    model: str
    """In the body."""


@dataclass(slots=True)
class Resource:
    """What one resource accepts."""

    deployments: frozenset[str]
    keys: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    versions: frozenset[str] = frozenset({"2024-10-21", "2025-03-01-preview"})


class Azure(Provider):
    """`asked` has what every call said of address and credentials."""

    def __init__(self, resource: Resource) -> None:
        super().__init__()
        self.resource = resource
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        """The resource's address, as it stands in gateway.yaml."""
        return f"http://127.0.0.1:{self.port}"

    def answer(self, exchange: Exchange) -> Iterator[Action]:
        path, _, query = exchange.path.partition("?")
        sent = orjson.loads(exchange.body) if exchange.body[:1] == b"{" else {}
        asked = Asked(path, dict(parse_qsl(query)), _credentials(exchange), str(sent.get("model", "")))
        self.asked.append(asked)
        refused = self._refused(asked, sent)
        if refused is not None:
            self.exchanges.append(exchange)
            return self._tell(exchange, refused[0], orjson.dumps(refused[1]))
        exchange.path = "/v1" + _endpoint(path)[1]
        return super().answer(exchange)

    def _refused(self, asked: Asked, sent: dict[str, object]) -> tuple[int, object] | None:
        """Status and body; None: it is answered."""
        if not self._admits(asked.credentials):
            return 401, DENIED
        deployment, endpoint = _endpoint(asked.path)
        newer = asked.path.startswith("/openai/v1/")
        if not newer and asked.query.get("api-version") not in self.resource.versions:
            return 404, NO_RESOURCE
        if not newer and (endpoint in BELOW_DEPLOYMENTS) != bool(deployment):
            return 404, NO_RESOURCE
        if (deployment or asked.model) not in self.resource.deployments:
            return 404, NO_DEPLOYMENT
        return (400, FILTERED) if b"FILTER ME" in orjson.dumps(sent) else None

    def _admits(self, credentials: dict[str, str]) -> bool:
        if len(credentials) != 1:
            return False
        token = credentials.get("authorization", "")
        return credentials.get("api-key") in self.resource.keys or (
            token.startswith("Bearer ") and token.removeprefix("Bearer ") in self.resource.tokens
        )


def _credentials(exchange: Exchange) -> dict[str, str]:
    names = ("api-key", "authorization", "x-api-key")
    found = {name: exchange.header(name.encode()) for name in names}
    return {name: value.decode("latin-1") for name, value in found.items() if value is not None}


def _endpoint(path: str) -> tuple[str, str]:
    """The deployment in `path`, empty without one, and the endpoint."""
    if path.startswith("/openai/v1/"):
        return "", path.removeprefix("/openai/v1")
    if path.startswith("/openai/deployments/"):
        deployment, _, endpoint = path.removeprefix("/openai/deployments/").partition("/")
        return unquote(deployment), "/" + endpoint
    return "", path.removeprefix("/openai")
