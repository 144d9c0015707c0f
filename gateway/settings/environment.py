"""Reads environment variables and secret files. No other module reads them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from gateway.settings.files import ConfigError

PROVIDER_KEYS: dict[str, str] = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "groq": "GROQ_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "xai": "XAI_API_KEY",
    "cohere": "COHERE_API_KEY",
    "together_ai": "TOGETHER_API_KEY",
}
"""litellm's name of a provider → the variable that contains its key."""


def variable(name: str, default: str = "") -> str:
    return os.environ.get(name, default)


def variables(prefix: str) -> dict[str, str]:
    """All environment variables whose names begin with `prefix`."""
    return {name: value for name, value in os.environ.items() if name.startswith(prefix)}


def define(name: str, value: str) -> None:
    """Set an environment variable for this process and its child processes."""
    os.environ[name] = value


def secret(reference: str, where: str) -> str:
    """Read the secret at `env:NAME` or `file:PATH`. Raises ConfigError; its message never contains the secret."""
    kind, _, rest = reference.partition(":")
    if kind == "env" and rest:
        value = os.environ.get(rest, "")
        if not value:
            raise ConfigError([f"{where}: the environment variable {rest} is not set; export it before starting"])
        return value
    if kind == "file" and rest:
        try:
            return Path(rest).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError([f"{where}: the secret file {rest} cannot be read ({error.strerror})"]) from error
    raise ConfigError([f"{where}: must be env:NAME or file:PATH, so that shared files contain no secrets"])


def provider_keys() -> dict[str, str]:
    """The API keys in the environment: provider → key, for the providers whose variables are set."""
    return {provider: os.environ[name] for provider, name in PROVIDER_KEYS.items() if os.environ.get(name)}


def receiver(reference: str) -> str:
    """Read the URL or the mail addresses at `env:NAME` or `file:PATH`; empty if not set. May block."""
    if reference.startswith("file:"):
        try:
            return Path(reference.removeprefix("file:")).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""
    return os.environ.get(reference.removeprefix("env:"), "")


def receiver_secret(reference: str) -> str:
    """The key that signs the messages to a receiver; empty if messages are not signed. For the URL in `env:NAME`, the
    key is in the variable NAME_SECRET."""
    return os.environ.get(f"{reference.removeprefix('env:')}_SECRET", "") if reference.startswith("env:") else ""


def smtp_settings() -> dict[str, str]:
    """The settings of the mail server: THRIFTGATE_SMTP_HOST, _PORT, _USER, _PASSWORD, _FROM and _TLS as `host`, `port`
    …; empty if not set."""
    names = ("host", "port", "user", "password", "from", "tls")
    return {name: os.environ.get(f"THRIFTGATE_SMTP_{name.upper()}", "") for name in names}


def pagerduty_url() -> str:
    """The address of PagerDuty's Events API. Operators whose account is in the European region set
    THRIFTGATE_PAGERDUTY_URL."""
    return os.environ.get("THRIFTGATE_PAGERDUTY_URL") or "https://events.pagerduty.com/v2/enqueue"


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment variables for a process that the supervisor starts."""
    return {**os.environ, **extra}


def keep_litellm_offline() -> None:
    """Prevent LiteLLM from downloading a price list. Call this before litellm is imported."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")


def keep_onnxruntime_offline() -> None:
    """Prevent onnxruntime from storing a device id and from sending events. Call this before its library is loaded."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"


def proxy_for(url: str) -> str:
    """The proxy for `url` according to `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`; empty if there is
    none."""
    if sys.platform == "linux" and not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""  # on other systems, the system's settings may name a proxy
    from urllib.request import (
        getproxies,
        proxy_bypass,
    )  # imported late, because it loads half of the standard library and only `serve` needs it

    address = urlsplit(url)
    proxies = getproxies()
    if not address.hostname or address.hostname.startswith("169.254.") or proxy_bypass(address.netloc):
        return ""  # a proxy cannot reach the metadata endpoint of this machine
    return proxies.get(address.scheme) or proxies.get("all", "")


def otlp_endpoint() -> str:
    return os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")


def names_data_dir() -> bool:
    """Whether the environment names a data directory."""
    return bool(os.environ.get("THRIFTGATE_DATA_DIR"))


def state_home() -> Path:
    """The folder for data about this user's running processes. The folder may be deleted at any time."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "thriftgate"


def default_data_dir() -> Path:
    if named := os.environ.get("THRIFTGATE_DATA_DIR"):
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "thriftgate"
