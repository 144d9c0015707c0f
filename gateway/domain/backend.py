"""The settings of a backend: address, capabilities, price."""

from __future__ import annotations

import re
from datetime import date
from functools import cached_property, lru_cache
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.domain.kinds import KINDS, BackendDialectName, Kind, KindFacts
from gateway.domain.money.price_classes import Factor, TierKey, few_factors
from gateway.domain.provider_name import provider_name
from gateway.domain.request import DialectName
from gateway.domain.routing.whereabouts import host_of, loopback, private, providers_own
from gateway.domain.section import Section
from gateway.domain.units import DurationS, TokenUsd, Usd

Location = Literal["local", "hosted"]
Strength = Literal["small", "large"]
TierName = Literal["small", "large", "hosted"]
"""A tier. Policies and `x-thriftgate-tier` select backends by tier. `small` and `large` are local backends by strength;
`hosted` are all backends outside the operator's machines."""
LitellmHeader = Literal["call_id", "session", "tags", "end_user"]
Capability = Literal["tools", "vision", "json_schema", "reasoning", "logprobs"]

Billing = Literal["on_demand", "spot", "reserved"]
"""The hours of a machine that are paid. on_demand: all hours in which the gateway runs. spot: only hours in which the
machine answered. reserved: all hours."""

STRENGTHS: tuple[Strength, ...] = get_args(Strength)
_PARTICULAR = {name: kind for kind, facts in KINDS.items() for name in facts.settings}
"""Key of a backend's entry → the kind of backend that has this key. Only keys that a single kind has."""
_OF_ENTRA = frozenset({"tenant_id", "client_id", "client_secret", "authority_host", "token_scope"})
_GOOGLE_LOCATION = re.compile(r"[a-z]+(-[a-z]+\d{1,2})?")
_PROFILE = re.compile(r"(?:arn:[^/]*:inference-profile/)?(global|us-gov|us|eu|apac|jp|au|ca)\.")
"""Matches the names of Bedrock's inference profiles that call a model in several regions."""
_AWS_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}")
RANK: dict[str, int] = {"small": 0, "large": 1, "hosted": 2}
"""Tier → rank, weakest first."""


class TierEntry(Section):
    """The prices of one service tier, in USD per 1M tokens."""

    input: TokenUsd = Field(description="USD per 1M input tokens at this tier.")
    cached_input: TokenUsd | None = Field(
        None, description="USD per 1M input tokens read from the provider's cache at this tier."
    )
    cache_write_5m: TokenUsd | None = Field(
        None, description="USD per 1M tokens written to a 5-minute cache at this tier."
    )
    cache_write_1h: TokenUsd | None = Field(
        None, description="USD per 1M tokens written to a 1-hour cache at this tier."
    )
    output: TokenUsd = Field(description="USD per 1M output tokens at this tier.")
    reasoning: TokenUsd | None = Field(None, description="USD per 1M reasoning tokens at this tier.")


class PriceEntry(Section):
    """A price as it is written in the file: `{machine_hour_usd: 2.10}`, or USD per 1M tokens `{input: 0.15,
    cached_input: 0.075, output: 0.60}`."""

    input: TokenUsd | None = Field(None, description="USD per 1M input tokens.")
    cached_input: TokenUsd | None = Field(None, description="USD per 1M input tokens read from the provider's cache.")
    cache_write_5m: TokenUsd | None = Field(None, description="USD per 1M tokens written to a 5-minute cache.")
    cache_write_1h: TokenUsd | None = Field(None, description="USD per 1M tokens written to a 1-hour cache.")
    output: TokenUsd | None = Field(None, description="USD per 1M output tokens.")
    reasoning: TokenUsd | None = Field(None, description="USD per 1M reasoning tokens.")
    service_tiers: dict[TierKey, Factor | TierEntry] = Field(
        default_factory=dict,
        description="Service tier (priority, flex, fast, us) → a factor on these prices, or the prices of the tier.",
    )
    machine_hour_usd: Usd | None = Field(None, description="USD per hour of the machine on which the model runs.")
    tokens_per_second: float | None = Field(
        None,
        gt=0,
        description="Assumed throughput, by which the machine's price is divided until the throughput is measured.",
    )
    billing: Billing | Literal["busy"] = Field(
        "on_demand",
        description="Hours of the machine that are charged. on_demand: those in which the gateway runs; spot: those in "
        "which the machine answers; reserved: all; busy: only the time in which it answers.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> PriceEntry:
        per_token = self.input is not None and self.output is not None
        if per_token == (self.machine_hour_usd is not None):
            raise ValueError("give either machine_hour_usd alone, or both input and output")
        few_factors(self.service_tiers)
        if self.service_tiers and not per_token:
            raise ValueError("service_tiers: a machine costs the same at every tier; leave service_tiers out")
        return self


class Backend(Section):
    """One entry of `backends:` in gateway.yaml."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", description="Name of the backend in policies, requests and reports."
    )
    kind: Kind = Field(description="Vendor, cloud or API of the backend.")
    base_url: str = Field("", description="Address of the API, such as http://127.0.0.1:9001/v1.")
    api_key: SecretStr | None = Field(None, description="API key, as env:NAME or file:PATH. It is read at the start.")
    bearer_token: str | None = Field(
        None,
        pattern="^(env|file):.+",
        description="Azure: a bearer token (Entra ID) instead of api_key; env:NAME, or file:PATH, which is read again "
        "when it changes.",
    )
    auth: Literal["entra"] | None = Field(
        None,
        description="Azure: entra requests tokens from Microsoft Entra instead of api_key: for client_secret, a "
        "workload identity or a managed identity.",
    )
    tenant_id: str | None = Field(
        None, pattern=r"^[A-Za-z0-9.-]+$", description="Azure: id or domain of the tenant; null: AZURE_TENANT_ID."
    )
    client_id: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9-]+$",
        description="Azure: id of the application or of the user-assigned identity; null: AZURE_CLIENT_ID.",
    )
    client_secret: str | None = Field(
        None,
        pattern="^(env|file):.+",
        description="Azure: the application's secret, as env:NAME or file:PATH. It is read for each token.",
    )
    authority_host: str | None = Field(
        None,
        pattern=r"^https?://[^/?#@\s]+/?$",
        description="Azure: address of Entra in a sovereign cloud; null: AZURE_AUTHORITY_HOST, else "
        "https://login.microsoftonline.com.",
    )
    token_scope: str = Field(
        "https://cognitiveservices.azure.com/.default",
        pattern=r"^[!-~]+/\.default$",
        description="Azure: the resource for which tokens are requested.",
    )
    model: str = Field(description="Name of the model at the provider or server.")
    model_group: str = Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._:/-]*)?$",
        description="Common name of backends with the same model. The cheapest of them that can serve is called.",
    )
    deployment: str | None = Field(
        None, min_length=1, description="Azure: name of the deployment, if it differs from the name of the model."
    )
    api_version: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9-]+$",
        description="Azure: version of the API, such as 2024-10-21, for /openai/deployments/…; null: /openai/v1/….",
    )
    aws_profile: str | None = Field(
        None, min_length=1, description="Bedrock: profile in AWS's shared files whose credentials are used."
    )
    project: str | None = Field(None, pattern=r"^[a-z0-9:.-]+$", description="Vertex AI: the id of the project.")
    google_credentials: str | None = Field(
        None,
        pattern="^file:.+",
        description="Vertex AI: file:PATH of a service account's key or another credential file of Google's; null: "
        "GOOGLE_APPLICATION_CREDENTIALS, else the metadata server.",
    )
    litellm_headers: tuple[LitellmHeader, ...] = Field(
        (),
        description="litellm_proxy: facts about a request that the proxy gets in its own headers: call_id, session, "
        "tags (team and ledger row), end_user. Session and end user are pseudonyms.",
    )
    strength: Strength | None = Field(
        None,
        description="small or large: the tier of a local backend. A backend that is hosted, or has no strength, is in "
        "the tier hosted.",
    )
    tier: TierName = Field("hosted", description="Former key; use strength and location.")
    window_tokens: int | None = Field(
        None, gt=0, description="Context window in tokens. Null: from the packaged price list, else unknown."
    )
    max_output_tokens: int | None = Field(None, gt=0, description="Maximum tokens of one answer.")
    capabilities: frozenset[Capability] = Field(frozenset(), description="Capabilities of the model beyond text.")
    price: PriceEntry | None = Field(None, description="Prices. Null: from the packaged price list, else unknown.")
    dialects: tuple[BackendDialectName, ...] = Field(
        (), description="Dialects of the backend's API. Empty: those of its kind that its server accepts."
    )
    location: Location | None = Field(
        None,
        description="local: on the operator's own machines; free if it has no price. hosted: at a provider; teams with "
        "`data.hosted: forbidden` do not reach it. Null: local at a private address, hosted at a public address or a "
        "name, and for another gateway. The address of a known provider is always hosted.",
    )
    prompt_cache: bool | None = Field(
        None,
        description="May the gateway add fields for the provider's prompt cache: marks for kind anthropic, "
        "prompt_cache_key for kinds openai and azure? Null: only at Anthropic's and OpenAI's own addresses.",
    )
    teams: tuple[str, ...] | None = Field(None, description="Teams that may use the backend. Null: all teams.")
    only_named: bool = Field(
        False, description="Leave it out of `auto` and of tiers; only its own name, model or group leads to it."
    )
    region: str = Field("", description="Region of the machines, for `data.regions` in policies.")
    spot: bool = Field(
        False, description="Whether the machine may disappear at short notice; see `replicas.on_demand`."
    )
    spot_notice: str | None = Field(
        None,
        pattern=r"^/[^\s?#]*$",
        description="Path on the backend's server that answers 404, and 200 once the end of the machine is announced.",
    )
    metrics: bool | None = Field(
        None,
        description="Whether to read /metrics of its server for its load. Null: if it is local or costs by the hour.",
    )
    slots: int | None = Field(None, gt=0, description="Requests that its server processes at a time. Null: measured.")
    spill_after: DurationS = Field(
        2.0, description="Expected wait at this backend above which other backends are preferred."
    )
    timeout: DurationS = Field(600.0, description="Maximum duration of a call.")
    first_byte_timeout: DurationS = Field(
        60.0, description="Maximum wait for the first byte of a stream; also of a plain answer, if this key is set."
    )
    stall_timeout: DurationS = Field(120.0, description="Maximum pause within a stream.")
    concurrent: int = Field(1024, gt=0, description="Maximum calls in progress.")
    queue: int = Field(256, ge=0, description="Maximum requests that wait for a free call.")
    queue_timeout: DurationS = Field(5.0, description="Maximum wait for a free call.")

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, given: Any) -> Any:
        """Complete the raw values: add the usual address and API key of the backend's kind, and the tier. Values that
        cannot be used are left for later validators, which refuse them."""
        if not isinstance(given, dict):
            return given
        given = _of_preset(given)
        if "tier" in given or (strength := given.get("strength")) not in STRENGTHS:
            return given
        where = (str(given.get(name) or "") for name in ("kind", "base_url", "location"))
        return {**given, "tier": tier_of(strength, *where)}

    @field_validator("api_version", mode="before")
    @classmethod
    def _as_text(cls, given: Any) -> Any:
        """Convert a date to text. YAML reads 2024-10-21 as a date, but the author means the version of an API."""
        return given.isoformat() if isinstance(given, date) else given

    @model_validator(mode="after")
    def _reachable(self) -> Backend:
        if self.facts.needs_base_url and not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must begin with http:// or https:// for kind {self.kind}")
        if "@" in urlsplit(self.base_url).netloc:
            raise ValueError("base_url must not contain a user name or a password; give the secret as api_key")
        given = [name for name, kind in _PARTICULAR.items() if kind != self.kind and name in self.model_fields_set]
        if given:
            raise ValueError(
                f"{' and '.join(given)}: only for kind {' or '.join({_PARTICULAR[name] for name in given})}"
            )
        if self.kind == "azure":
            self._check_azure()
        if self.kind == "bedrock" and not _AWS_REGION.fullmatch(self.region):
            raise ValueError("kind bedrock needs region, such as eu-central-1: the region that signatures name")
        if self.kind == "vertex" and not (self.project and _GOOGLE_LOCATION.fullmatch(self.region)):
            raise ValueError("kind vertex needs project, and region, such as europe-west4 or global")
        return self

    def _check_azure(self) -> None:
        path = urlsplit(self.base_url).path.strip("/")
        if "deployments" in path.split("/") or path.endswith(("openai", "openai/v1")):
            raise ValueError(
                "base_url must be the resource's address alone, as https://NAME.openai.azure.com; the gateway adds "
                "/openai, the deployment and api_version"
            )
        if [self.api_key, self.bearer_token, self.auth].count(None) != 2:
            raise ValueError("kind azure needs one of api_key, bearer_token and auth: entra")
        if self.auth is None and (given := sorted(_OF_ENTRA & self.model_fields_set)):
            raise ValueError(f"{given[0]}: only with auth: entra; add auth: entra, or leave it out")
        if self.client_secret is not None and not (self.tenant_id and self.client_id):
            raise ValueError("client_secret: needs tenant_id and client_id; add both")
        host = self.authority_host
        if host is not None and not host.startswith("https://") and not loopback(host):
            raise ValueError("authority_host: must begin with https://, because secrets are sent to it")

    def same_model(self, other: Backend) -> bool:
        """Whether both backends serve the same model. They do if their model names are equal, or if they have the same
        `model_group`."""
        return self.model == other.model or (bool(self.model_group) and self.model_group == other.model_group)

    @property
    def data_region(self) -> str:
        """The region that a policy must allow. This is `region`, or the prefix of a Bedrock inference profile that
        spans several regions, such as `eu` or `global`."""
        found = _PROFILE.match(self.sent_model) if self.kind == "bedrock" else None
        return found[1] if found else self.region

    @property
    def authenticated_by(self) -> str:
        """The settings that the operator should check if the backend refuses the gateway's credential."""
        if self.auth is not None:
            return "`client_id` and the roles of its identity"
        return "`api_key`" if self.bearer_token is None else "`bearer_token`"

    @cached_property
    def spoken(self) -> tuple[DialectName, ...]:
        """The dialects in which the backend can be called, best dialect first."""
        return self.dialects or self.facts.dialects

    @cached_property
    def facts(self) -> KindFacts:
        """The facts about the backend's kind. For some kinds, they also depend on the backend's model or address."""
        facts = KINDS[self.kind]
        if facts.at_v1 is not None and self.base_url.rstrip("/").endswith("/v1"):
            return facts.at_v1
        return facts.of_claude if facts.of_claude is not None and "claude" in self.model.lower() else facts

    @cached_property
    def takes_marks(self) -> bool:
        """Whether the gateway may add marks to a prompt. Marks tell this backend which part of the prompt to cache."""
        if not self.facts.caches_marked_only:
            return False
        return host_of(self.base_url) == "api.anthropic.com" if self.prompt_cache is None else self.prompt_cache

    @cached_property
    def takes_cache_key(self) -> bool:
        """Whether the gateway may send `prompt_cache_key` to the backend. With this key, OpenAI finds the machine that
        has a prompt in its cache."""
        if self.kind not in ("openai", "azure"):
            return False
        return host_of(self.base_url) == "api.openai.com" if self.prompt_cache is None else self.prompt_cache

    @cached_property
    def by_the_hour(self) -> bool:
        """Whether the hours of the backend's machine cost money even if it answers nothing."""
        price = self.price
        return price is not None and bool(price.machine_hour_usd) and price.billing != "busy"

    @cached_property
    def simulated(self) -> bool:
        """Whether the backend is simulated, without a real model."""
        return self.kind == "simulated"

    @property
    def managed(self) -> bool:
        """Whether the backend is the local model that the gateway itself starts."""
        return self.kind == "local" and not self.base_url

    @property
    def sent_model(self) -> str:
        """The model name that the gateway sends to the backend."""
        return self.deployment or self.model

    @cached_property
    def hosted(self) -> bool:
        """Whether prompts to the backend leave the operator's machines."""
        return bool(self.why_hosted)

    @cached_property
    def why_hosted(self) -> str:
        """The reason why prompts to the backend leave the operator's machines; empty if they stay there. The tier
        `hosted` in gateway.yaml is a reason, too."""
        written = self.tier == "hosted" and self.strength is None and "tier" in self.model_fields_set
        explicit = "hosted" if written else ""
        return _why_hosted(self.kind, self.base_url, self.location, explicit)

    @property
    def provider_name(self) -> str:
        """The name of the backend's provider according to OpenTelemetry's conventions."""
        return provider_name(self.kind, self.base_url, self.model)

    @property
    def own(self) -> bool:
        """Whether the backend runs on the operator's own machines, so that no provider sends a bill. The host is judged
        by its name alone, without DNS."""
        if providers_own(self.base_url) or self.facts.why_hosted:
            return False
        if self.location is not None:
            return self.location == "local"
        if self.facts.own_machine:
            return True
        return self.tier != "hosted" and not self.facts.calls_others and private(self.base_url)


def _of_preset(given: dict[str, Any]) -> dict[str, Any]:
    """Add the usual address and key of the backend's kind to `given`, the entry of a backend. The entry is returned
    unchanged if it has an address already, or if its kind has no usual address.
    """
    facts = KINDS.get(str(given.get("kind")))
    if facts is None or not facts.base_url or given.get("base_url"):
        return given
    key = {} if given.get("api_key") or not facts.key else {"api_key": f"env:{facts.key}"}
    address = facts.base_url.format(region=given.get("region") or "").replace("//global-", "//")
    return {**given, "base_url": address, **key}


def tier_of(strength: Strength, kind: str, base_url: str, location: str | None) -> TierName:
    """The tier of a backend of this strength. The tier is `hosted` if prompts to the backend leave the operator's
    machines."""
    return "hosted" if location == "hosted" or _why_hosted(kind, base_url, location or None, "") else strength


@lru_cache(maxsize=4096)
def _why_hosted(kind: str, base_url: str, location: str | None, tier: str) -> str:
    if kind == "simulated":
        return ""
    if providers_own(base_url):
        return f"{host_of(base_url)} is a provider's, whatever location says"
    if reason := KINDS[kind].why_hosted if kind in KINDS else "":
        return reason
    if not base_url and kind == "litellm":
        return "without base_url litellm asks the model's provider, whatever location says"
    if location is not None:
        return "its location is hosted" if location == "hosted" else ""
    if tier:
        return "its tier is hosted and no location is given for it"
    if kind in KINDS and KINDS[kind].calls_others:
        return "it may pass prompts on, and no location is given for it"
    if not base_url:
        return ""
    return "" if private(base_url) else "its address is public, or a name that may lead anywhere"
