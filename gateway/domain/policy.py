"""A team's rules as one immutable object; every key's default is visible here."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from gateway.domain.units import DurationS, Share, Usd

TEAM_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
TEAM_NAME_LENGTH = 64

Priority = Literal["interactive", "batch"]
"""Under load `interactive` is served before `batch`."""

PassThrough = Literal["audio", "images", "moderations", "rerank"]
"""Endpoints of OpenAI's that are passed on without being understood."""


class Section(BaseModel):
    """Strict and immutable: an unknown key is an error, a loaded policy never changes."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class ModelRule(Section):
    """What a model name that an app uses stands for."""

    candidates: tuple[str, ...] = Field((), description="Backends or tiers to choose among; empty: all.")
    quality: Share = Field(0.95, description="Wanted probability that the answer is as good as the reference's.")
    reference: str | None = Field(
        None, description="Backend or tier that answers when in doubt; no route is dearer. Null: the dearest candidate."
    )
    escalate: bool = Field(True, description="Ask a stronger backend when the small one is unsure (plain requests).")
    confidence: Share = Field(0.6, description="Mean token probability under which an answer is escalated.")


_AUTO = ModelRule()


def _rule(value: object) -> object:
    """`gpt-4o: auto` is an alias; `gpt-4o: [small, large]` a list of candidates."""
    if isinstance(value, list | tuple):
        return {"candidates": list(value)}
    return value


ModelEntry = Annotated[ModelRule | str, BeforeValidator(_rule, json_schema_input_type=ModelRule | str | list[str])]


class SemanticPolicy(Section):
    enabled: bool = Field(True, description="Answer paraphrases of earlier questions from the cache, verified.")
    max_error: Share = Field(0.01, description="Wrong hits allowed, as a share of look-ups.")
    sampled: bool = Field(False, description="Also when temperature is absent or above 0.3.")


class CachePolicy(Section):
    enabled: bool = Field(True, description="Reuse answers at all.")
    scope: Literal["key", "team", "organisation", "public"] = Field("team", description="Who shares answers.")
    ttl: DurationS = Field(86400.0, description="How long an answer may be reused, e.g. 24h.")
    semantic: SemanticPolicy = SemanticPolicy()


class ContextPolicy(Section):
    enabled: bool = Field(True, description="Drop context that does not fit the limit or the backend's window.")
    max_input_tokens: int | None = Field(None, gt=0, description="Tokens of input to keep per request.")


class Notify(Section):
    """Where a budget alert goes. Addresses come from the operator's environment, never from the file."""

    webhook: str = Field(description="env:NAME of the variable that holds the URL.", pattern=r"^env:[A-Z][A-Z0-9_]*$")


class Budget(Section):
    limit_usd: Usd = Field(description="US dollars per window.")
    window: Literal["hour", "day", "week", "month", "total"] = Field("month", description="Calendar window.")
    timezone: str = Field("UTC", description="IANA zone in which windows begin.")
    alerts: tuple[Literal["forecast"] | Share, ...] = Field(
        (0.5, 0.8, 1.0), description="Shares of the limit, and forecast."
    )
    notify: tuple[Notify, ...] = Field((), description="Receivers of alerts.")
    on_exhausted: Literal["refuse", "downgrade"] = Field(
        "refuse", description="downgrade: what costs nothing is still served; refuse: nothing is."
    )
    on_state_loss: Literal["refuse", "allow"] = Field(
        "refuse", description="When counters are out of reach and the lease is spent."
    )

    @field_validator("limit_usd")
    @classmethod
    def _above_zero(cls, value: Decimal) -> Decimal:
        if value <= 0:
            raise ValueError("must be above 0")
        return value

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"unknown time zone {value!r}; use an IANA name such as Europe/Madrid") from None
        return value


def _one_or_many(value: object) -> object:
    if value is None:
        return ()
    return (value,) if isinstance(value, dict | Budget) else value


Budgets = Annotated[
    tuple[Budget, ...], BeforeValidator(_one_or_many, json_schema_input_type=Budget | list[Budget] | None)
]


class Rates(Section):
    requests_per_minute: int | None = Field(None, gt=0, description="Requests admitted per minute.")
    tokens_per_minute: int | None = Field(None, gt=0, description="Input and output tokens per minute.")
    concurrent: int | None = Field(None, gt=0, description="Requests in progress at a time.")


class LimitsPolicy(Rates):
    per_key: Rates = Field(Rates(), description="The same limits for each single key.")
    priority: Priority = Field("interactive", description="batch: under load the team's requests give way to others'.")


class DataPolicy(Section):
    hosted: Literal["allowed", "forbidden"] = Field("allowed", description="May prompts leave to hosted backends?")
    regions: tuple[str, ...] = Field((), description="Backends must be in one of these; empty: anywhere.")
    store_prompts: bool = Field(
        False, description="May prompts be stored? Then `previous_response_id` finds the team's earlier responses."
    )


class Policy(Section):
    """policies/TEAM.yaml."""

    team: str = Field(min_length=1, max_length=TEAM_NAME_LENGTH, pattern=f"^{TEAM_NAME}$", description="Who pays.")
    organisation: str = Field("default", min_length=1, max_length=64, description="Whose team it is.")
    mode: Literal["observe", "route"] = Field("route", description="observe: serve as asked, record the decision.")
    share: Share = Field(1.0, description="Share of requests that the decision applies to.")
    models: dict[str, ModelEntry] = Field(default_factory=dict, description="Name an app uses → rule, alias or list.")
    cache: CachePolicy = CachePolicy()
    context: ContextPolicy = ContextPolicy()
    budget: Budgets = Field((), description="One budget or a list.")
    limits: LimitsPolicy = LimitsPolicy()
    data: DataPolicy = DataPolicy()
    passthrough: tuple[PassThrough, ...] = Field(
        (), description="Other endpoints that the team may use: audio, images, moderations, rerank."
    )

    @model_validator(mode="after")
    def _aliases_end(self) -> Policy:
        for name in self.models:
            self.rule(name)
        return self

    def rule(self, model: str) -> ModelRule | str | None:
        """The rule behind `model` (aliases followed), a backend's name, or None when the policy does not know it.

        `auto` always exists. Raises ValueError for an alias that leads back to itself.
        """
        seen = {model}
        name = model
        while True:
            entry = self.models.get(name)
            if entry is None:
                if name == "auto":
                    return _AUTO
                return name if name != model else None
            if isinstance(entry, ModelRule):
                return entry
            if entry in seen:
                raise ValueError(f"models.{model}: the alias leads back to itself")
            seen.add(entry)
            name = entry
