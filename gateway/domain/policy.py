"""A team's policy as an immutable object, with the default of every key."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from gateway.domain.money.budget import Budget, Budgets, Timezone
from gateway.domain.notify import Notify
from gateway.domain.section import Section
from gateway.domain.slo import Slo, SloPolicy
from gateway.domain.units import MOST_COUNT, DelayS, DurationS, Share, Size, Usd

TEAM_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
TEAM_NAME_LENGTH = 64

Priority = Literal["interactive", "batch"]
"""The priority of a request. Under load, `interactive` is served before `batch`."""

PassThrough = Literal["audio", "images", "moderations", "rerank"]
"""OpenAI endpoints that are passed on without being interpreted."""


class ModelRule(Section):
    """The backends that a model name means, and the rule for the choice among them."""

    candidates: tuple[str, ...] = Field((), description="Backends or tiers to choose among; empty: all.")
    quality: Share = Field(0.95, description="Wanted probability that the answer is as good as the reference's.")
    reference: str | None = Field(
        None, description="Backend or tier that answers when in doubt; no route is dearer. Null: the dearest candidate."
    )
    escalate: bool = Field(True, description="Ask a stronger backend when the small one is unsure.")
    confidence: Share = Field(0.6, description="Mean token probability under which an answer is escalated.")
    max_output_tokens: int | None = Field(
        None, gt=0, le=MOST_COUNT, description="Instead of `context.max_output_tokens`, for this model name."
    )


_AUTO = ModelRule()

_LATER = (
    b',"max_output_tokens":null',
    b',"long_documents":"keep"',
    b',"repeated_errors":"keep"',
    b',"unused_tools":"keep"',
    b',"flagged_turns":"keep"',
    b',"old_turns":"keep"',
)
"""Keys that were added later, as JSON with their default values."""


def _rule(value: object) -> object:
    """Convert a list of candidates (`gpt-4o: [small, large]`) to a rule. An alias (`gpt-4o: auto`) stays as it is."""
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
    join: Literal["none", "host", "everywhere"] = Field(
        "host",
        description="Equal requests under way share one answer: none, those of this host's workers, or of all gateways "
        "on one state server, which then asks it before each call.",
    )
    max_answer_bytes: Size = Field(2**18, gt=0, le=2**18, description="Longer answers are not kept.")
    quota_answers: int = Field(
        20_000, gt=0, le=20_000, description="Answers the team may keep; beyond it those go that save least per byte."
    )
    quota_bytes: Size = Field(2**28, gt=0, le=2**28, description="Likewise, in bytes of answers.")
    semantic: SemanticPolicy = SemanticPolicy()


def _off(value: object) -> object:
    """Convert `False` to `off`, because YAML reads a bare `off` as false."""
    return "off" if value is False else value


class ContextPolicy(Section):
    enabled: bool = Field(True, description="Drop context that does not fit the limit or the backend's window.")
    max_input_tokens: int | None = Field(None, gt=0, le=MOST_COUNT, description="Tokens of input to keep per request.")
    max_output_tokens: int | None = Field(
        None,
        gt=0,
        le=MOST_COUNT,
        description="Most output tokens that a request may ask for, beside the thinking that it asks for; others get "
        "this limit.",
    )
    prompt_cache: Annotated[Literal["auto", "client", "off"], BeforeValidator(_off)] = Field(
        "auto",
        description="Marks for Anthropic's prompt cache: auto adds those that pay beside the client's, client sends "
        "only the client's, off none.",
    )
    old_outputs: Literal["cut", "keep"] = Field(
        "cut",
        description="Old tool outputs that are probably no longer needed: cut leaves them out where that pays, keep "
        "sends them.",
    )
    long_documents: Literal["relevant", "keep"] = Field(
        "keep",
        description="Long documents beside a question: relevant sends the passages that concern it, at most half of "
        "the tokens; keep sends them whole.",
    )
    repeated_errors: Literal["once", "keep"] = Field(
        "keep",
        description="Errors of tools that repeat an earlier one word for word: once sends the later ones as a note, "
        "keep sends them whole. Only in Anthropic's dialect, which marks errors.",
    )
    unused_tools: Literal["leave_out", "keep"] = Field(
        "keep",
        description="Definitions of tools that a long session has never used: leave_out leaves them out when the "
        "provider's cache has expired, until one is needed; keep sends them.",
    )
    flagged_turns: Literal["leave_out", "keep"] = Field(
        "keep",
        description="Answers that a client reported as wrong: leave_out sends a short mark in their place in later "
        "requests of the session, keep sends them.",
    )
    old_turns: Literal["summarize", "keep"] = Field(
        "keep",
        description="Old tool outputs and answers of a long session: summarize has the cheapest adequate backend write "
        "notes about them in a pause, and sends the notes in their place after it; keep sends them.",
    )
    keep_alive: bool = Field(
        False,
        description="Send one request with an answer of one token in a session's pause, before Anthropic's cache "
        "forgets the prompt, where that pays. It needs prompt_cache: auto.",
    )
    holdout: Share = Field(
        0.02, description="Share of sessions from which nothing is left out, to measure what leaving out saves."
    )

    @cached_property
    def shortens(self) -> bool:
        """Whether parts of a request may be left out even if the request is not long."""
        return not self.long_documents == self.repeated_errors == self.flagged_turns == "keep"


class AlertsPolicy(Section):
    """The receivers of a team's alerts, including alerts about budgets."""

    notify: tuple[Notify, ...] = Field((), description="Receivers of all the team's alerts, besides the log.")
    escalate_to: tuple[Notify, ...] = Field(
        (), description="Receivers of critical alerts that were not acknowledged in time."
    )
    escalate_after: DurationS = Field(1800.0, description="How long that is waited for, e.g. 30m.")
    weekly_report: tuple[Notify, ...] = Field(
        (),
        description="Receivers of a report each Monday (UTC): spend and savings of last week, forecast of the month.",
    )
    anomalies: bool = Field(
        True, description="Tell of spend that is unlike the team's own past, of rows without a cost, of a cold cache."
    )


class PacingPolicy(Section):
    enabled: bool = Field(False, description="Prefer cheaper backends while a budget runs ahead of its plan.")
    tolerance: Share = Field(
        0.1, gt=0, description="Share of the limit ahead of plan at which the preference is at its strongest."
    )
    floor: Share = Field(0.85, description="No `quality` is lowered below this.")


class StreamsPolicy(Section):
    """Limits for holding back the beginning of a stream while it is judged: how much is held back, and for how long.
    During this time, a stronger backend may still answer instead.
    """

    hold_tokens: int = Field(
        24, ge=0, le=512, description="Tokens kept back to judge them, where a stronger backend may still answer."
    )
    hold_for: DelayS = Field(
        2.0, description="Longest that they are kept back, and that a cascade of whole answers may take; 0s: neither."
    )


class HedgingPolicy(Section):
    enabled: bool = Field(
        False, description="Ask a second time where a stream has not begun when 95 % of its backend's have."
    )
    share: Share = Field(0.05, description="Most of the team's streams that are asked for twice.")


class AgentsPolicy(Section):
    """The reaction to an agent that repeats the same failing tool calls."""

    loop_alert: int = Field(
        5, ge=0, le=1000, description="Equal calls with equal errors in a row, from which an alert is sent; 0: never."
    )
    loop_stop: int = Field(
        10, ge=0, le=1000, description="Refuse requests after this many equal failing calls in a row; 0: never."
    )


class TrialsPolicy(Section):
    """Comparisons of answers in the background. The team pays for them."""

    share: Share = Field(
        0.0, description="Share of answers that are compared with another backend's in the background."
    )
    classes: Share = Field(
        0.0,
        description="Share of requests outside the grader's domain (tools, images, other languages) that are compared "
        "until their traffic class is opened for a cheaper backend, or refused; 0: the reference answers them all.",
    )
    cap_usd: Usd = Field(
        "1",
        description="Most USD that comparing may cost the team per `learning.period` of gateway.yaml.",
        validate_default=True,
    )
    judge: str = Field(
        "agreement",
        min_length=1,
        description="Who compares: agreement (of final answers), exact (of texts), or a backend by name, asked blind.",
    )


class Organisation(Section):
    """One entry of `organisations:` in gateway.yaml. Its settings apply to all teams whose policies name it."""

    budget: Budgets = Field((), description="One budget or a list; their level is the organisation.")

    @field_validator("budget")
    @classmethod
    def _of_all(cls, budgets: tuple[Budget, ...]) -> tuple[Budget, ...]:
        for budget in budgets:
            if "per" in budget.model_fields_set and budget.per != "organisation":
                raise ValueError(f"per: {budget.per} belongs into the policies of its teams")
        return tuple(budget.model_copy(update={"per": "organisation"}) for budget in budgets)


class Rates(Section):
    requests_per_minute: int | None = Field(None, gt=0, le=MOST_COUNT, description="Requests admitted per minute.")
    tokens_per_minute: int | None = Field(None, gt=0, le=MOST_COUNT, description="Input and output tokens per minute.")
    concurrent: int | None = Field(None, gt=0, le=MOST_COUNT, description="Requests in progress at a time.")


class LimitsPolicy(Rates):
    per_key: Rates = Field(Rates(), description="The same limits for each single key.")
    priority: Priority = Field("interactive", description="batch: under load the team's requests give way to others'.")
    service_tiers: tuple[str, ...] | None = Field(
        None, description="Tiers and speeds that requests may ask for beside the standard one; not set: any."
    )


Forwarded = Literal["mcp", "files", "stores"]


class DataPolicy(Section):
    hosted: Literal["allowed", "forbidden"] = Field("allowed", description="May prompts leave to hosted backends?")
    regions: tuple[str, ...] = Field((), description="Backends must be in one of these; empty: anywhere.")
    store_end_users: bool = Field(
        False, description="Keep which end user a pseudonym on the ledger stands for; `ledger forget` erases it."
    )
    store_prompts: bool = Field(
        False, description="May prompts be stored? Then `previous_response_id` finds the team's earlier responses."
    )
    store_samples: DurationS | None = Field(
        None,
        description="How long compared requests and answers are kept for learning, e.g. 30d; not set: never.",
    )
    share: Literal["key", "team"] = Field(
        "key",
        description="Who may see stored files, batches, responses, and requests in the dashboard's log: the key that "
        "made them, or all of the team.",
    )
    forward: tuple[Forwarded, ...] = Field(
        (),
        description="What requests may name at a provider: mcp (servers that it calls), files, stores (its vector "
        "stores, containers, conversations, stored responses).",
    )
    server_tools: Literal["auto", "allowed", "forbidden"] = Field(
        "auto", description="Tools that a provider runs, such as web search; auto: not where `regions` are set."
    )

    @property
    def closes_server_tools(self) -> str:
        """The key of the policy by which server tools (tools that a provider runs) are forbidden; empty if they are
        allowed.
        """
        if self.hosted == "forbidden":
            return "data.hosted"
        if self.server_tools == "forbidden":
            return "data.server_tools"
        return "data.regions" if self.regions and self.server_tools == "auto" else ""


EXPERIMENT_TAG = "experiment:"
"""Prefix of the tag with which the ledger stores the variant of a request."""
ExperimentName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
Variants = Annotated[dict[ExperimentName, Annotated[str, Field(max_length=4000)]], Field(min_length=2, max_length=8)]


class Policy(Section):
    """The content of policies/TEAM.yaml."""

    team: str = Field(min_length=1, max_length=TEAM_NAME_LENGTH, pattern=f"^{TEAM_NAME}$", description="Who pays.")
    organisation: str = Field("default", min_length=1, max_length=64, description="Whose team it is.")
    cost_centre: str = Field("", max_length=64, description="Written beside each of the team's attempts.")
    timezone: Timezone = Field(
        "UTC", description="IANA zone in which the team's times are shown, and its budgets' windows and weeks begin."
    )
    mode: Literal["observe", "route"] = Field("route", description="observe: serve as asked, record the decision.")
    share: Share = Field(1.0, description="Share of requests that the decision applies to.")
    models: dict[str, ModelEntry] = Field(
        default_factory=dict, description="Name an app uses, or a pattern with * → rule, alias or list."
    )
    allowed_models: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] | None = Field(
        None,
        max_length=1000,
        description="Backends that the team may use, by name, model or tier; null: all. Aliases are followed first.",
    )
    cache: CachePolicy = CachePolicy()
    context: ContextPolicy = ContextPolicy()
    experiments: dict[ExperimentName, Variants] = Field(
        default_factory=dict,
        max_length=4,
        description="Name → variants (name → text added to the system prompt, empty: none). Each named session gets "
        "one variant, by chance and in equal shares.",
    )
    budget: Budgets = Field((), description="One budget or a list.")
    alerts: AlertsPolicy = AlertsPolicy()
    pacing: PacingPolicy = PacingPolicy()
    streams: StreamsPolicy = StreamsPolicy()
    hedging: HedgingPolicy = HedgingPolicy()
    agents: AgentsPolicy = AgentsPolicy()
    trials: TrialsPolicy = TrialsPolicy()
    slo: Slo = SloPolicy()
    limits: LimitsPolicy = LimitsPolicy()
    data: DataPolicy = DataPolicy()
    max_usd_per_request: Usd | None = Field(
        None,
        gt=0,
        description="Most that one request may cost, in USD, with retries and escalation. A dearer backend is skipped, "
        "an answer of text is asked for with a lower max_tokens.",
    )
    overrides: Literal["allowed", "denied"] = Field(
        "allowed",
        description="denied: a request with `x-thriftgate-cache`, `-tier` or `-context` gets 403.",
    )
    passthrough: tuple[PassThrough, ...] = Field(
        (), description="Other endpoints that the team may use: audio, images, moderations, rerank."
    )

    @model_validator(mode="before")
    @classmethod
    def _zone_of_budgets(cls, given: Any) -> Any:
        """Complete the raw values: budgets without a time zone get the team's time zone."""
        if not isinstance(given, dict) or "timezone" not in given or "budget" not in given:
            return given
        zone, budget = {"timezone": given["timezone"]}, given["budget"]
        if isinstance(budget, dict):
            return {**given, "budget": zone | budget}
        if not isinstance(budget, list):
            return given
        return {**given, "budget": [zone | each if isinstance(each, dict) else each for each in budget]}

    @field_validator("budget")
    @classmethod
    def _not_of_others(cls, budgets: tuple[Budget, ...]) -> tuple[Budget, ...]:
        if any(budget.per == "organisation" for budget in budgets):
            raise ValueError("an organisation's budget stands in gateway.yaml, under organisations.NAME.budget")
        return budgets

    @model_validator(mode="after")
    def _aliases_end(self) -> Policy:
        for name in self.models:
            self.rule(name)
        return self

    def rule(self, model: str) -> ModelRule | str | None:
        """The rule for the model name `model`; None if the policy does not mention this name. Aliases are followed. If
        an alias leads to a name without a rule, such as that of a backend, this name is returned. A model name
        without an entry gets the rule of the longest pattern that fits. Raises ValueError for a circular alias.
        """
        name = model if model in self.models or model == "auto" else self._pattern(model)
        seen = {name}
        while True:
            entry = self.models.get(name)
            if entry is None:
                if name == "auto":
                    return _AUTO
                return name if name != model else None
            if isinstance(entry, ModelRule):
                return entry
            if entry in seen:
                raise ValueError(f"models.{model}: this alias leads back to itself; name a backend or a rule instead")
            seen.add(entry)
            name = entry

    def _pattern(self, model: str) -> str:
        """The longest pattern in the policy's `models` that fits the name `model`. If none fits, `model` itself."""
        fitting = (name for name in self.models if "*" in name and fits(name, model))
        return max(fitting, key=len, default=model)


def without_later(shaping: bytes) -> bytes:
    """Remove from a policy (JSON) the keys that newer versions of the gateway have added, if they have their default
    values. So the policy's digest stays the same after an upgrade, and cached answers stay valid.
    """
    for later in _LATER:
        shaping = shaping.replace(later, b"")
    return shaping


def fits(pattern: str, name: str) -> bool:
    """Return whether `name` fits `pattern`, in which each `*` stands for any characters. The time is linear, so that no
    pattern or name can block the worker."""
    first, *parts = pattern.split("*")
    if not parts:
        return name == pattern
    *middle, last = parts
    at, end = len(first), len(name) - len(last)
    if at > end or not (name.startswith(first) and name.endswith(last)):
        return False
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
