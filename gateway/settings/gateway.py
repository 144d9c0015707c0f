"""The settings in gateway.yaml, and the paths in the data directory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator

from gateway.domain.backend import RANK, Backend
from gateway.domain.notify import RECEIVER_NAME
from gateway.domain.policy import Forwarded, Organisation
from gateway.domain.section import Section
from gateway.domain.units import DelayS, DurationS, Share, Size, Usd
from gateway.settings.environment import default_data_dir, secret
from gateway.settings.files import ConfigError, Document, loaded_as, read_document
from gateway.settings.prices import PriceSettings
from gateway.settings.receivers import KnownReceivers, ReceiverSettings
from gateway.settings.renamed_keys import OldName

_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s?#]+")


class Listen(Section):
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0: a free port.")


class Ceilings(Section):
    """Limits that no team's policy may exceed."""

    limit_usd: Usd | None = Field(None, description="Highest budget per period, in USD.")
    requests_per_minute: int | None = Field(None, gt=0, description="Highest limit of requests per minute of a team.")
    tokens_per_minute: int | None = Field(None, gt=0, description="Highest limit of tokens per minute of a team.")
    concurrent: int | None = Field(None, gt=0, description="Highest limit of requests in progress of a team.")
    max_input_tokens: int | None = Field(None, gt=0, description="Highest limit of input tokens of a request.")
    cache_ttl: DurationS | None = Field(None, description="Longest lifetime of a cached answer.")
    cache_scope: str | None = Field(
        None, pattern="^(key|team|organisation|public)$", description="Widest sharing of cached answers."
    )
    max_error: Share | None = Field(None, description="Highest share of wrong semantic hits that a policy may allow.")
    hosted: str | None = Field(
        None, pattern="^(allowed|forbidden)$", description="forbidden: no team may use hosted backends."
    )
    store_prompts: bool | None = Field(
        None, description="false: no team may store prompts, samples or notes about old turns."
    )
    forward: tuple[Forwarded, ...] | None = Field(
        None, description="The values that `data.forward` of a policy may list."
    )


class StateSettings(Section):
    redis_url: str | None = Field(None, description="Redis ≥ 6.2 or Valkey; null: an embedded Valkey server.")
    timeout: DurationS = Field(
        0.25, description="Maximum duration of a call to the state server; after that it counts as down."
    )
    max_memory_bytes: Size = Field(
        256 * 2**20,
        ge=32 * 2**20,
        description="Memory of the embedded server; when it is full, cached answers are evicted first.",
    )


class LedgerSettings(Section):
    database_url: str | None = Field(None, description="postgresql+psycopg://…; null: SQLite in the data directory.")
    keep_days: int | None = Field(
        None, ge=1, description="Rows older than this become sums of quarter hours; null: rows stay."
    )


class RequestLimits(Section):
    max_body_bytes: Size = Field(20 * 2**20, gt=0, description="Largest request body.")
    max_items: int = Field(
        20_000,
        gt=0,
        description="Most objects and arrays in a request body; keys may be 5 times, values 20 times as many.",
    )
    body_timeout: DurationS = Field(30.0, description="Maximum wait for a request's body.")
    upload_timeout: DurationS = Field(
        1800.0, description="Maximum wait for an uploaded file and for the requests of a batch."
    )
    body_rate: int = Field(
        4096, ge=0, description="Least average rate of a body in bytes per second, after body_grace; 0: no limit."
    )
    body_grace: DurationS = Field(
        10.0, description="Seconds from the start of a body in which body_rate does not apply."
    )
    deadline: DurationS = Field(600.0, description="Maximum duration of a request.")
    concurrent: int = Field(
        2000, gt=0, description="Maximum requests in progress in a worker; further requests get 503."
    )
    lag: DurationS = Field(0.05, description="Delay of the event loop above which requests get 503.")
    head_timeout: DurationS = Field(10.0, description="Maximum wait for a request's head.")
    socket_idle: DurationS = Field(600.0, description="How long a WebSocket may be open without a request in progress.")
    stall: DurationS = Field(
        60.0, description="Time after which a client that accepts no data of its answer is disconnected."
    )


class ShutdownSettings(Section):
    drain_delay: DelayS = Field(
        0.0, description="How long requests are still served after SIGTERM, while /health/ready returns 503."
    )
    grace_period: DurationS = Field(30.0, description="How long streams may continue after drain_delay.")


class CorsSettings(Section):
    origins: tuple[str, ...] = Field(
        ("*",), description="Origins whose pages may read answers of the API; [] allows none."
    )

    @field_validator("origins")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin!r} must be * or an origin such as https://app.example.com, without a path")
        return origins


class TelemetrySettings(Section):
    sample: Share = Field(0.05, description="Share of uneventful requests whose spans are exported.")
    client_sampled: bool = Field(
        True, description="Export the spans of every request that is sampled according to its `traceparent`."
    )
    slow: DurationS = Field(10.0, description="Duration from which on the spans of a request are always exported.")
    access_log: bool = Field(
        True, description="Write one line per request to standard output: JSON, or on a terminal a line for people."
    )


class EmbedderSettings(Section):
    model: str | None = Field(
        None,
        description="Folder that `thriftgate embedder build` wrote, or of a sentence-transformers model (extra `st`); "
        "null: the packaged MiniLM.",
    )
    device: str = Field("cpu", description="Device of that model: cpu, cuda, cuda:1, mps.")
    dimensions: int = Field(384, gt=0, description="Length of its vectors; not needed for a built embedder.")
    max_tokens: int = Field(256, gt=0, description="Most tokens it reads; longer texts only get exact hits.")


class ReplicaSettings(Section):
    """Settings for backends that serve the same model (replicas)."""

    overload: float = Field(
        1.25,
        gt=1,
        le=10,
        description="Load of a replica, as a multiple of the mean, above which conversations go to the next.",
    )
    on_demand: Share = Field(
        0.2, description="Share of conversations that avoid `spot` backends if the model has others."
    )


class TrialsSettings(Section):
    holdout: Share = Field(0.0, description="Share of conversations that the baseline serves, for comparison.")
    cap_usd: Usd = Field(
        "10", description="Most that comparisons may cost all teams together per period, in USD.", validate_default=True
    )
    window: Literal["hour", "day", "week", "month"] = Field("day", description="Calendar period of the caps, UTC.")

    cache_checks: Share = Field(0.05, description="Share of semantic cache hits that are compared with a fresh answer.")


def _paths(value: Any) -> Any:
    if value is None:
        return ()
    return [value] if isinstance(value, str) else value


class RoutingSettings(Section):
    artefact: Annotated[tuple[str, ...], BeforeValidator(_paths, json_schema_input_type=str | list[str] | None)] = (
        Field(
            (),
            description="Path of a plan made by `thriftgate router fit`, or a list of paths, one for each pool; "
            "not set: the grader decides.",
        )
    )
    refit: Literal["never", "weekly"] = Field(
        "never", description="weekly: a plan is fitted on the samples that teams keep, and put on trial."
    )


class DiscoverySettings(Section):
    machine_hour_usd: Usd = Field(
        "0.05",
        description="Assumed cost, in USD per hour in which it answers, of a model server found on this machine.",
        validate_default=True,
    )


class LocalModelSettings(Section):
    enabled: bool = Field(True, description="Run the packaged local model if it is installed.")
    gguf: str | None = Field(None, description="Path of the weights; null: the packaged SmolLM2-135M.")
    threads: int = Field(1, gt=0, description="CPU threads.")
    slots: int = Field(2, gt=0, description="Requests served in parallel.")
    window_tokens: int = Field(2048, gt=0, description="Context of each slot, in tokens.")
    gpu_layers: int = Field(0, ge=0, description="Layers to put on a GPU.")
    machine_hour_usd: Usd = Field("0.05", description="Cost of the machine per hour, in USD.", validate_default=True)


class GatewayConfig(Section):
    """The content of gateway.yaml. Without `backends`, the gateway uses what it finds on the machine."""

    listen: Listen = Listen()
    ceilings: Ceilings = Ceilings()
    organisations: dict[str, Organisation] = Field(
        default_factory=dict, description="Name → budgets that its teams share."
    )
    state: StateSettings = StateSettings()
    ledger: LedgerSettings = LedgerSettings()
    prices: PriceSettings = PriceSettings()
    requests: RequestLimits = RequestLimits()
    shutdown: ShutdownSettings = ShutdownSettings()
    cors: CorsSettings = CorsSettings()
    compression: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Compress answers if accept-encoding allows it; auto: not for the default header of a library.",
    )
    telemetry: TelemetrySettings = TelemetrySettings()
    embedder: EmbedderSettings = EmbedderSettings()
    replicas: ReplicaSettings = ReplicaSettings()
    trials: TrialsSettings = TrialsSettings()
    routing: RoutingSettings = RoutingSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    local_model: LocalModelSettings = LocalModelSettings()
    backends: tuple[Backend, ...] | None = Field(
        None, description="The backends. []: none; absent: those found at the start."
    )
    receivers: dict[Annotated[str, Field(pattern=RECEIVER_NAME, max_length=64)], ReceiverSettings] | None = Field(
        None, description="Name → receiver of alerts; policies can then use only these. Null: policies use env:NAME."
    )
    model_groups: Literal["named", "auto"] = Field(
        "named",
        description="named: backends are a group only by their `model_group`. auto: also backends whose names mean one "
        "model by the packaged table.",
    )
    admin_api: bool = Field(False, description="Whether keys with the scope admin may call /admin/*.")

    @field_validator("compression", mode="before")
    @classmethod
    def _switch(cls, compression: object) -> object:
        """Convert a boolean to text, because YAML reads a bare `on` or `off` as a boolean."""
        return ("on" if compression else "off") if isinstance(compression, bool) else compression

    @field_validator("backends")
    @classmethod
    def _names_differ(cls, backends: tuple[Backend, ...] | None) -> tuple[Backend, ...] | None:
        names = [backend.name for backend in backends or ()]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two backends are called {name!r}; give each its own name")
        for backend in backends or ():
            if (group := backend.model_group) and (group in names or group in RANK or group == "auto"):
                raise ValueError(f"model_group {group!r} of {backend.name} has another meaning; choose another name")
        return backends

    def closed_to(self, team: str) -> frozenset[str]:
        """The names of the backends that only other teams may use."""
        return frozenset(each.name for each in self.backends or () if each.teams is not None and team not in each.teams)


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths of everything that the gateway writes. All are in the data directory."""

    data: Path

    @property
    def journal(self) -> Path:
        return self.data / "journal"

    @property
    def sqlite(self) -> Path:
        return self.data / "ledger.sqlite"

    @property
    def prices(self) -> Path:
        """The file with prices from `thriftgate prices update`. These prices have priority over the packaged list."""
        return self.data / "prices.json"

    @property
    def valkey(self) -> Path:
        return self.data / "valkey"

    @property
    def policies(self) -> Path:
        """The folder with copies of the valid policies, for workers that start while a policy file is invalid."""
        return self.data / "policies-in-force"

    @property
    def accepted(self) -> Path:
        """The copy of the gateway.yaml from which the workers start."""
        return self.data / "accepted.yaml"

    @property
    def socket(self) -> Path:
        return self.data / "valkey" / "valkey.sock"

    @property
    def models(self) -> Path:
        return self.data / "models"

    @property
    def files(self) -> Path:
        return self.data / "files"

    @property
    def figures(self) -> Path:
        """The folder in which each process of the gateway publishes its figures for /metrics."""
        return self.data / "figures"

    @property
    def joins(self) -> Path:
        """The folder in which workers find answers that another worker is receiving, so that they can share them."""
        return self.data / "joins"

    @property
    def index(self) -> Path:
        """The file with the index of cached answers. The next start reads it."""
        return self.data / "cache.index"

    @property
    def pseudonyms(self) -> Path:
        """The file with the secret from which end users' pseudonyms are computed."""
        return self.data / "pseudonyms.key"

    @property
    def anchor(self) -> Path:
        """The anchor file, which keeps the newest entry of each ledger chain outside of the database."""
        return self.data / "ledger.anchor"

    @property
    def runtime(self) -> Path:
        """The file with facts about the running gateway (JSON): pid, port, backends found."""
        return self.data / "runtime.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings with which `serve` and all other commands start."""

    config: GatewayConfig
    paths: Paths
    policies: tuple[Path, ...]
    """Folders of policy files. If there are none, only the built-in default policy applies."""
    reserved: frozenset[str] = frozenset()
    """Environment variables that gateway.yaml refers to."""
    old_names: tuple[OldName, ...] = ()
    """Keys that gateway.yaml writes by their old names."""

    @property
    def known_receivers(self) -> KnownReceivers:
        return KnownReceivers(self.config.receivers, self.reserved)

    @property
    def keys_in(self) -> str:
        """A text for people that names the place where API keys are stored, without the database's password."""
        if self.config.ledger.database_url:
            return "the database of ledger.database_url"
        return f"the data directory {self.paths.data}"

    @property
    def database_url(self) -> str:
        return self.config.ledger.database_url or f"sqlite:///{self.paths.sqlite}"


def load_settings(
    config: Path | None = None, data_dir: Path | None = None, policies: Sequence[Path] = (), *, keys: bool = True
) -> Settings:
    """Load gateway.yaml and read the secrets to which it refers. Defaults: gateway.yaml and policies/ in the working
    directory. `keys`: whether to read the backends' keys, too. Raises ConfigError."""
    if config is None and Path("gateway.yaml").is_file():
        config = Path("gateway.yaml")
    if not policies and Path("policies").is_dir():
        policies = (Path("policies"),)
    for folder in policies:
        if not folder.is_dir():
            raise ConfigError([f"{folder}: no such directory; give a folder of policy files"])
    old_names: list[OldName] = []
    file = read_document(config) if config else Document("defaults", None, {})
    loaded = loaded_as(file, GatewayConfig, old_names.append) if config else GatewayConfig()
    paths = Paths((data_dir or default_data_dir()).absolute())
    return Settings(_resolve(loaded, file, keys), paths, tuple(policies), _variables(loaded), tuple(old_names))


def _variables(config: GatewayConfig) -> frozenset[str]:
    """The names of all environment variables to which secrets refer with `env:NAME`."""
    references = [config.state.redis_url, config.ledger.database_url]
    references += [each.api_key.get_secret_value() for each in config.backends or () if each.api_key]
    references += [key for each in config.backends or () for key in (each.bearer_token, each.client_secret)]
    return frozenset(each.removeprefix("env:") for each in references if each and each.startswith("env:"))


def _resolve(config: GatewayConfig, file: Document, keys: bool) -> GatewayConfig:
    """Replace the references to secrets in `config` by the secrets. `keys`: whether the backends' keys are needed.
    Raises ConfigError with all secrets that cannot be read."""
    problems: list[str] = []

    def read(reference: str, *path: str | int) -> str:
        try:
            return secret(reference, file.place(path).removesuffix(": "))
        except ConfigError as error:
            problems.extend(error.problems)
            return ""

    def known(number: int, backend: Backend) -> Backend:
        for name in ("bearer_token", "client_secret"):
            if keys and (reference := getattr(backend, name)) is not None:
                read(reference, "backends", number, name)
        if backend.api_key is None:
            return backend
        key = read(backend.api_key.get_secret_value(), "backends", number, "api_key") if keys else None
        return backend.model_copy(update={"api_key": key and SecretStr(key)})

    updates: dict[str, object] = {}
    if config.backends:
        updates["backends"] = tuple(known(number, backend) for number, backend in enumerate(config.backends))
    for section, key in (("state", "redis_url"), ("ledger", "database_url")):
        value = getattr(getattr(config, section), key)
        if value and value.startswith(("env:", "file:")):
            resolved = read(value, section, key)
            updates[section] = getattr(config, section).model_copy(update={key: resolved})
    if problems:
        raise ConfigError(problems)
    return config.model_copy(update=updates)
