"""Finds out from an address whether a backend is local or hosted, without DNS.

A name may resolve to any address. So a name counts as hosted, unless the operator's settings say otherwise. The domain
of a known provider always counts as hosted.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

_PROVIDERS = re.compile(
    r"(?:.+\.)?(?:"
    r"openai\.com|openai\.azure\.com|openai\.azure\.us|ai\.azure\.com|cognitiveservices\.azure\.com|anthropic\.com|claude\.com"
    r"|(?:.+-)?aiplatform\.googleapis\.com|generativelanguage\.googleapis\.com|mistral\.ai|groq\.com|openrouter\.ai"
    r"|deepseek\.com|x\.ai|cohere\.(?:ai|com)|together\.(?:ai|xyz)|cerebras\.ai|sambanova\.ai|fireworks\.ai|deepinfra\.com"
    r"|dashscope(?:-[a-z]+)?\.aliyuncs\.com|moonshot\.(?:ai|cn)|perplexity\.ai|voyageai\.com|jina\.ai|ai21\.com"
    r"|bedrock(?:-[a-z]+)*(?:\.[a-z0-9-]+)?\.(?:amazonaws\.com(?:\.cn)?|api\.aws)|huggingface\.(?:co|cloud)|replicate\.com"
    r"|api\.nvidia\.com|githubcopilot\.com|models\.github\.ai|bigmodel\.cn|z\.ai|minimax\.(?:io|chat)|minimaxi\.com"
    r"|siliconflow\.(?:cn|com)|volces\.com|novita\.ai|hyperbolic\.xyz|nebius\.(?:ai|com)|lambda\.ai|baseten\.co"
    r"|gateway\.ai\.cloudflare\.com|api\.cloudflare\.com|databricks\.com|azuredatabricks\.net|watsonx\.ai|ml\.cloud\.ibm\.com"
    r"|anyscale\.com|featherless\.ai|inference\.net|scaleway\.ai|ovhcloud\.com|friendli\.ai|upstage\.ai|reka\.ai|writer\.com"
    r")"
)
"""Matches domains at which providers serve models, and their subdomains."""
_LOOPBACK = ("127.0.0.0/8", "0.0.0.0/32", "::1/128", "::/128")
_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10")
_OURS = tuple(ip_network(network) for network in (*_LOOPBACK, *_PRIVATE))
"""Private networks. The standard library's list is not used, because it includes addresses that a translator maps to
public addresses."""


def host_of(url: str) -> str:
    """The host in `url`, without a final dot. Empty for a unix socket, and for a text that is not an address."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return "?"


@lru_cache(maxsize=4096)
def providers_own(url: str) -> bool:
    """Return whether the host in `url` belongs to a known provider."""
    return _PROVIDERS.fullmatch(host_of(url)) is not None


def loopback(url: str) -> bool:
    """Return whether the host in `url` is this machine."""
    host = host_of(url)
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def private(url: str) -> bool:
    """Return whether `url` names a unix socket, the loopback interface, or an IP address in a private network."""
    if url.startswith(("unix:", "http+unix:")):
        return True
    host = host_of(url)
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in _OURS)
