"""The files that the measured gateways run on; a report prints them in full."""

from __future__ import annotations

PRICE_PICO = (2_500_000, 10_000_000)
"""Of an input and an output token of the backend below."""

GATEWAY = """\
# Everything that is not said here is the default: embedded Valkey, SQLite ledger, one worker.
telemetry: {{access_log: false}}
trials: {{cache_checks: 0}}
local_model: {{enabled: false}}
backends:
  - name: loadtest
    kind: openai
    base_url: http://127.0.0.1:{upstream}/v1
    model: loadtest
    tier: large
    window_tokens: 400000
    concurrent: 1024
    price: {{input: 2.5, output: 10}}
  - name: loadtest-messages
    kind: anthropic
    base_url: http://127.0.0.1:{upstream}/v1
    model: loadtest-messages
    tier: large
    window_tokens: 400000
    concurrent: 1024
    price: {{input: 2.5, output: 10}}
  - name: loadtest-responses
    kind: openai
    base_url: http://127.0.0.1:{upstream}/v1
    model: loadtest-responses
    dialects: [openai_responses]
    tier: large
    window_tokens: 400000
    concurrent: 1024
    price: {{input: 2.5, output: 10}}
"""
SMALL = """\
  - name: small
    kind: openai
    base_url: http://127.0.0.1:{upstream}/v1
    model: loadtest
    tier: small
    window_tokens: 400000
    concurrent: 1024
    price: {{input: 2.5, output: 10}}      # as the large one, so that the ledger can be checked to the pico-dollar
"""
POLICY = """\
# Limits, a hard budget with holds, journal, metrics and the exact cache are on; none of the limits is reached.
team: {team}
organisation: loadtest
cache: {{scope: team, ttl: 1h, semantic: {{enabled: false}}}}
context: {{enabled: false}}
budget: {{limit_usd: 1000000, window: month, on_exhausted: refuse, on_state_loss: refuse}}
limits:
  requests_per_minute: 6000000
  tokens_per_minute: 6000000000
  concurrent: 1024
  per_key: {{requests_per_minute: 6000000, concurrent: 1024}}
"""
AGENTS = POLICY.replace("context: {{enabled: false}}\n", "")
"""Of the agent cells: with the context plan, which is on by default."""
EVERYTHING = """\
# As the plain row, and also: difficulty grader (auto, two candidates), semantic cache, trimming.
team: {team}
organisation: loadtest
models:
  auto: {{candidates: [small, loadtest], quality: 95%, reference: loadtest}}
cache: {{scope: team, ttl: 1h, semantic: {{enabled: true, max_error: 1%}}}}
context: {{max_input_tokens: 12000}}
budget: {{limit_usd: 1000000, window: month, on_exhausted: refuse, on_state_loss: refuse}}
limits:
  requests_per_minute: 6000000
  tokens_per_minute: 6000000000
  concurrent: 1024
  per_key: {{requests_per_minute: 6000000, concurrent: 1024}}
"""


def files(upstream: int, *, everything: bool) -> dict[str, str]:
    """Path below the gateway's folder → text."""
    gateway = GATEWAY + (SMALL if everything else "")
    policy = EVERYTHING if everything else POLICY
    return {
        "gateway.yaml": gateway.format(upstream=upstream),
        "policies/load.yaml": policy.format(team="load"),
        "policies/hits.yaml": policy.format(team="hits"),
        "policies/agents.yaml": AGENTS.format(team="agents"),
    }
