"""Converts one model of a LiteLLM config to a backend. An address or key of one vendor is never used for another
vendor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any
from urllib.parse import urlsplit

from gateway.domain.kinds import KINDS

_KINDS = {
    "openai": "openai",
    "text-completion-openai": "openai",
    "hosted_vllm": "openai",
    "openai_like": "openai",
    "custom_openai": "openai",
    "anthropic": "anthropic",
    "azure": "azure",
    "bedrock": "bedrock",
    "gemini": "gemini",
    "vertex_ai": "vertex",
    "openrouter": "openrouter",
    "mistral": "mistral",
    "groq": "groq",
    "deepseek": "deepseek",
    "xai": "xai",
    "together_ai": "together",
    "ollama": "ollama",
    "ollama_chat": "ollama",
}
"""LiteLLM's provider → kind of backend. Other providers become `kind: litellm`."""
_OPENAIS = re.compile(r"(gpt-|chatgpt-|o\d|codex|text-embedding-|omni-|ft:|whisper|tts-|dall-e)")
"""Beginning of model names that LiteLLM sends to OpenAI if the name has no provider."""
_ROUTES = re.compile(r"^(responses|converse|converse_like|invoke|o_series|gpt5_series)/")
"""Words between provider and model that select one of the provider's APIs."""
_VENDORS = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "text-completion-openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
}
"""Provider → the vendor's own address, and the variable with its key."""
_PREFIX = {"text-completion-openai": "OPENAI", "ollama_chat": "OLLAMA", "together_ai": "TOGETHERAI"}
"""Provider → first part of the names of its variables, if this is not the provider's name."""
_AZURE = (".azure.com", ".azure.us", ".azure.cn")
_PLACEHOLDERS = frozenset(
    {"none", "null", "empty", "fake", "fake-key", "fake-api-key", "dummy", "na", "n/a", "not-needed", "no-key",
     "anything", "unused", "sk-no-key-required"}
)  # fmt: skip
"""Values that people write as the key of a server that needs no key."""
_PRICES = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached_input",
    "cache_creation_input_token_cost": "cache_write_5m",
    "output_cost_per_reasoning_token": "reasoning",
}
_SIZES = {"max_input_tokens": "context_window", "max_output_tokens": "max_output_tokens"}
_MORE = {
    "azure": {"api_version": "api_version"},
    "bedrock": {"aws_region_name": "region", "aws_profile_name": "aws_profile"},
    "vertex": {"vertex_project": "project", "vertex_location": "region"},
}
"""Kind → LiteLLM's key → key of the backend."""
SECRETS = ("api_key", "azure_ad_token", "client_secret")
"""LiteLLM's keys with a secret; the first of them that a model has is used."""
_ENTRA = frozenset({"tenant_id", "client_id", "client_secret"})
_VARIABLE = "os.environ/"


class LeftOut(Exception):
    """Raised if the model cannot become a backend. The message is the reason."""


class Model:
    """One model of the config, which is converted to a backend. `used`: the keys of the model that were taken over into
    the backend. `remarks`: sentences about what the user has to do."""

    def __init__(
        self, alias: str, params: Mapping[str, Any], info: Mapping[str, Any], variables: Mapping[str, str]
    ) -> None:
        """`params`, `info`: the sections `litellm_params` and `model_info`. `variables`: the environment variables of
        the proxy."""
        self._alias, self._params, self._info, self._variables = alias, params, info, variables
        self.used = {("litellm_params", "model")}
        self.remarks: list[str] = []

    def backend(self, name: str, variable: str) -> dict[str, Any]:
        """The entry of the backend `name`. `variable`: the environment variable for a key that the config contains.
        Raises LeftOut."""
        kind, provider, model = self._kind()
        values: dict[str, Any] = {"name": name, "kind": kind, "model": model}
        if kind == "azure":
            values |= {"model": self._base_model() or self._alias, "deployment": model}
        base = self._address(kind, provider)
        if base:
            values["base_url"] = base
        if entra := self._entra(variable) if kind == "azure" else {}:
            values |= entra
        elif key := self._key(kind, provider, base, variable):
            values["api_key"] = key
        for theirs, ours in _MORE.get(kind, {}).items():
            if value := self._text("litellm_params", theirs):
                values[ours] = value
        if kind == "vertex" and (path := self._credentials()):
            values["google_credentials"] = f"file:{path}"
        return values | self._sizes() | self._calls() | self._mode(kind) | self._prices()

    def _kind(self) -> tuple[str, str, str]:
        """The kind of the backend, LiteLLM's name of the provider, and the provider's name of the model."""
        model = self._text("litellm_params", "model")
        if not model:
            raise LeftOut("the name of its model is in a variable that is not set here; export it and call this again")
        provider, model_at = model.partition("/")[::2]
        if given := self._text("litellm_params", "custom_llm_provider"):
            provider, model_at = given, model.removeprefix(f"{given}/")
        elif not model_at:
            provider = "anthropic" if model.startswith("claude") else "openai" if _OPENAIS.match(model) else ""
            model_at = model
        kind = _KINDS.get(provider, "litellm")
        gemini_at_own_address = kind in ("gemini", "vertex") and self._params.get("api_base")
        if gemini_at_own_address or (kind == "vertex" and not self._fits_vertex(model_at)):
            kind = "litellm"
        if kind == "litellm":
            return kind, provider, f"{given}/{model_at}" if given else model
        return kind, provider, _ROUTES.sub("", model_at)

    def _fits_vertex(self, model: str) -> bool:
        where = [self._peek("litellm_params", key) for key in ("vertex_project", "vertex_location")]
        return all(where) and model.startswith(("gemini", "claude"))

    def _address(self, kind: str, provider: str) -> str:
        """The address to write; empty if the kind has an address of its own. An address in the config is never replaced
        by a vendor's."""
        base = self._given_address(
            (*(["aws_bedrock_runtime_endpoint"] if kind == "bedrock" else []), "api_base", "base_url")
        )
        if not base and kind != "litellm":
            prefix = _prefix(provider)
            names = (f"{prefix}_API_BASE", f"{prefix}_BASE_URL")
            base = next((self._variables[name] for name in names if self._variables.get(name)), "")
            base = base or _VENDORS.get(provider, ("", ""))[0]
        if not base and KINDS.get(kind) and KINDS[kind].needs_base_url and not KINDS[kind].base_url:
            raise LeftOut("the model has no address; add `api_base`")
        if "@" in urlsplit(base).netloc:
            raise LeftOut("its address contains a password; write it by hand, with the key in a variable")
        return _as_ours(kind, base)

    def _given_address(self, keys: tuple[str, ...]) -> str:
        for key in keys:
            given = self._params.get(key)
            if given in (None, ""):
                continue
            if value := self._text("litellm_params", key):
                return value.rstrip("/")
            where = str(given).removeprefix(_VARIABLE) if _is_reference(given) else "no text"
            raise LeftOut(f"its address is in {where}, which is not set here; export it and call this again")
        return ""

    def _key(self, kind: str, provider: str, base: str, variable: str) -> str:
        """The place of the API key, in the form of gateway.yaml, such as `env:NAME`; empty if nothing must be written.
        If the config has no key for the model, a vendor's usual key is used only at this vendor's own address."""
        given = self._params.get("api_key")
        at_vendor = not base or _host(base) == _host(_VENDORS.get(provider, (KINDS[kind].base_url, ""))[0])
        if given in (None, ""):
            return self._default_key(kind, provider, base, variable, at_vendor)
        self.used.add(("litellm_params", "api_key"))
        if _is_reference(given):
            name = str(given).removeprefix(_VARIABLE)
            return "" if at_vendor and not base and name == KINDS[kind].key else f"env:{name}"
        if str(given).lower() in _PLACEHOLDERS and kind != "azure":
            if at_vendor:
                return self._default_key(kind, provider, base, variable, at_vendor)
            self.remarks.append("its api_key is a placeholder, so no key is sent")
            return ""
        self.remarks.append(f"its key is not copied; export it as {variable}")
        return f"env:{variable}"

    def _entra(self, variable: str) -> dict[str, Any]:
        """The settings for Microsoft Entra. Empty if the model has an `api_key`, which LiteLLM prefers. Raises
        LeftOut."""
        params = self._params
        if params.get("api_key") not in (None, ""):
            return {}
        if params.get("azure_ad_token"):
            return {"bearer_token": self._secret("azure_ad_token", variable)}
        if not (_ENTRA & params.keys()):
            return {}
        found: dict[str, Any] = {"auth": "entra"}
        for key in ("tenant_id", "client_id"):
            if value := self._text("litellm_params", key):
                found[key] = value
            elif params.get(key):
                where = str(params[key]).removeprefix(_VARIABLE)
                raise LeftOut(f"its {key} is in {where}, which is not set here; export it and call this again")
        if params.get("client_secret"):
            found["client_secret"] = self._secret("client_secret", variable)
        return found

    def _secret(self, key: str, variable: str) -> str:
        """The place of the secret at `key`, in the form of gateway.yaml, such as `env:NAME`. `variable`: the name of
        the environment variable for a secret that the config itself contains."""
        self.used.add(("litellm_params", key))
        if _is_reference(given := self._params[key]):
            return f"env:{str(given).removeprefix(_VARIABLE)}"
        self.remarks.append(f"its {key} is not copied; export it as {variable}")
        return f"env:{variable}"

    def _default_key(self, kind: str, provider: str, base: str, variable: str, at_vendor: bool) -> str:
        if kind == "azure":
            if _host(base).endswith(_AZURE):
                return "env:AZURE_API_KEY"
            self.remarks.append(f"it has no key; export it as {variable}")
            return f"env:{variable}"
        if at_vendor:
            name = _VENDORS.get(provider, ("", ""))[1] or (KINDS[kind].key if base else "")
            return f"env:{name}" if name else ""
        own = f"{_prefix(provider)}_API_KEY"
        if provider in ("hosted_vllm", "openai_like") and own in self._variables:
            return f"env:{own}"
        if kind != "litellm":
            self.remarks.append("it has no key, so no key is sent; add `api_key` if it needs one")
        return ""

    def _credentials(self) -> str:
        path = self._peek("litellm_params", "vertex_credentials")
        if not path or path.lstrip().startswith("{"):
            return ""
        self.used.add(("litellm_params", "vertex_credentials"))
        return path

    def _base_model(self) -> str:
        """The model that a deployment on Azure runs."""
        return self._text("model_info", "base_model") or self._text("litellm_params", "base_model")

    def _sizes(self) -> dict[str, int]:
        found = {}
        for theirs, ours in _SIZES.items():
            value = self._info.get(theirs)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                found[ours] = value
                self.used.add(("model_info", theirs))
        return found

    def _calls(self) -> dict[str, Any]:
        """The time limit of a call, and the maximum number of parallel calls."""
        found: dict[str, Any] = {}
        timeout, calls = self._params.get("timeout"), self._params.get("max_parallel_requests")
        if isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout > 0:
            found["timeout"] = f"{timeout:g}s"
        if isinstance(calls, int) and not isinstance(calls, bool) and calls > 0:
            found["max_parallel_requests"] = calls
        self.used |= {("litellm_params", key) for key in found}
        return found

    def _mode(self, kind: str) -> dict[str, Any]:
        mode = self._info.get("mode")
        if mode == "embedding" and "openai_embeddings" not in KINDS[kind].dialects:
            return {"only_named": True}
        if mode is not None:
            self.used.add(("model_info", "mode"))
        if mode == "embedding":
            return {"dialects": ["openai_embeddings"]}
        return {} if mode in (None, "chat", "completion", "responses") else {"only_named": True}

    def _prices(self) -> dict[str, Any]:
        """The price, if the prices of input and output are both known."""
        found = {}
        for theirs, ours in _PRICES.items():
            section = "litellm_params" if theirs in self._params else "model_info"
            price = _price((self._params if theirs in self._params else self._info).get(theirs))
            if price is not None:
                found[ours] = (round(price * 1e6, 6), (section, theirs))
        if not {"input", "output"} <= set(found):
            return {}
        self.used |= {key for _, key in found.values()}
        return {"price": {ours: price for ours, (price, _) in found.items()}}

    def _text(self, section: str, key: str) -> str:
        """The text at `key` of the `section`; empty if there is none. If the text is the name of a variable, returns
        the variable's value. Marks the key as used."""
        if found := self._peek(section, key):
            self.used.add((section, key))
        return found

    def _peek(self, section: str, key: str) -> str:
        value = (self._params if section == "litellm_params" else self._info).get(key)
        if _is_reference(value):
            return self._variables.get(str(value).removeprefix(_VARIABLE), "")
        return str(value) if isinstance(value, str | date) else ""  # YAML reads a version such as 2024-10-21 as a date


def _as_ours(kind: str, base: str) -> str:
    """The address with the path that a backend of this kind needs."""
    base = base.rstrip("/")
    if base and kind == "anthropic":
        base = base.removesuffix("/messages")
    adds_version = kind in ("anthropic", "ollama") and base and not base.endswith("/v1")
    return f"{base}/v1" if adds_version else base


def _prefix(provider: str) -> str:
    return _PREFIX.get(provider, provider.upper().replace("-", "_"))


def _host(address: str) -> str:
    return urlsplit(address).hostname or ""


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_VARIABLE)


def _price(value: Any) -> float | None:
    """Parse a price in USD per token; None if `value` is no price. YAML reads `1e-7` as text."""
    try:
        price = float(value) if not isinstance(value, bool) else -1.0
    except (TypeError, ValueError):
        return None
    return price if 0 <= price < 1 else None
