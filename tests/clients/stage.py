"""The real gateway in front of scripted upstreams of one dialect each, and the programs that talk to it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.clients.brain_server import CHAT, CONVERSE, GEMINI, MESSAGES, OLLAMA, RESPONSES, Brain
from tests.clients.catalogue import (
    CHAT_MODEL,
    CLAUDE_MODEL,
    CONVERSE_MODEL,
    EMBEDDER,
    GEMINI_MODEL,
    HERE,
    INSTALLED,
    OLLAMA_MODEL,
    RESPONSES_MODEL,
    App,
    Target,
)
from tests.e2e.gateway_process import GatewayProcess

CONFIG = """\
backends:
  - {{name: chat, kind: openai, base_url: "{chat}/v1", model: {chat_model}, tier: small, api_key: env:BRAIN_KEY,
      window_tokens: 200000, capabilities: [tools, vision, json_schema, reasoning], price: {{input: 0.1, output: 0.4}}}}
  - {{name: responses, kind: openai, base_url: "{responses}/v1", model: {responses_model}, tier: large,
      dialects: [openai_responses], api_key: env:BRAIN_KEY, window_tokens: 200000,
      capabilities: [tools, vision, json_schema, reasoning], price: {{input: 2.5, output: 10}}}}
  - {{name: claude, kind: anthropic, base_url: "{claude}/v1", model: {claude_model}, tier: hosted,
      api_key: env:BRAIN_KEY, window_tokens: 200000, capabilities: [tools, vision, json_schema, reasoning],
      price: {{input: 3, output: 15}}}}
  - {{name: gemini, kind: gemini, base_url: "{gemini}/v1beta", model: "{gemini_model}", api_key: env:BRAIN_KEY,
      window_tokens: 200000, capabilities: [tools, vision, json_schema, reasoning], price: {{input: 3, output: 15}}}}
  - {{name: converse, kind: bedrock, base_url: "{converse}", model: "{converse_model}", api_key: env:BRAIN_KEY,
      region: eu-central-1, window_tokens: 200000, capabilities: [tools, vision, json_schema, reasoning],
      price: {{input: 3, output: 15}}}}
  - {{name: ollama, kind: ollama, base_url: "{ollama}", model: "{ollama_model}", api_key: env:BRAIN_KEY, tier: small,
      window_tokens: 200000, capabilities: [tools, vision, json_schema, reasoning], price: {{input: 3, output: 15}}}}
local_model: {{enabled: false}}
"""
POLICIES = {
    "off": """\
models: {embedder: [chat], claude-haiku-4-5-20251001: [chat], claude-opus-4-5-20251101: [responses],
         gpt-5.6-terra: [chat], gpt-5.5: [claude], gpt-5.6-sol: [responses],
         claude-sonnet-4-5-20250929: [gemini], claude-opus-4-1-20250805: [converse], claude-haiku-4-5: [ollama]}
cache: {enabled: false}
context: {enabled: false}
data: {store_prompts: true}
passthrough: [moderations]
""",
    "on": """\
models: {auto: {candidates: [chat, responses, claude]}, embedder: [chat], claude-opus-4-6: auto, gpt-5.6-luna: auto}
cache: {scope: team, semantic: {enabled: true, sampled: true}}
context: {max_input_tokens: 12000}
data: {store_prompts: true}
passthrough: [moderations]
""",
    "agents": """\
models: {auto: {candidates: [chat, responses, claude]}, claude-opus-4-6: auto, gpt-5.6-luna: auto}
cache: {scope: team, semantic: {enabled: true, sampled: true}}
context: {max_input_tokens: 60000}
""",
    "spent": "budget: {limit_usd: 0.000001, window: total}\n",
}
"""`agents` is `on` with room for a coding agent, whose 30000 tokens of tools and system prompt cannot be trimmed."""
BRAIN_KEY = "sk-brain-0123456789abcdef"


@dataclass
class Stage:
    """All that stands while the clients run."""

    gateway: GatewayProcess
    brains: dict[str, Brain]
    keys: dict[str, str]
    reports: dict[tuple[App, Target], dict[str, Any]] = field(default_factory=dict)
    asked: dict[tuple[App, Target], dict[str, int]] = field(default_factory=dict)
    """Upstream → how often it was asked while the program ran."""

    def environment(self, target: Target, home: Path) -> dict[str, str]:
        """Of a client: nothing of the tester's own, and no proxy between it and the gateway."""
        return {
            "PATH": f"{INSTALLED / 'agents' / 'node_modules' / '.bin'}:{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "NO_PROXY": "*",
            "CLIENT_BASE": self.gateway.base,
            "CLIENT_KEY": self.keys[target.team],
            "CLIENT_SPENT_KEY": self.keys["spent"],
            "CLIENT_MODEL": target.model,
            "CLIENT_CLAUDE_MODEL": target.claude_model,
            "CLIENT_EMBEDDER": EMBEDDER,
            "CLIENT_LACKS": target.lacks,
        }

    def report(self, app: App, target: Target, home: Path) -> dict[str, Any]:
        """Case → why it failed ("": it did not); the program runs once per target."""
        if (app, target) not in self.reports:
            before = {name: len(brain.heard) for name, brain in self.brains.items()}
            done = subprocess.run(
                app.command,
                env=self.environment(target, home), cwd=home, capture_output=True, timeout=150, check=False,
            )  # fmt: skip
            lines = [orjson.loads(line) for line in done.stdout.splitlines() if line.startswith(b'{"case"')]
            self.reports[app, target] = {line["case"]: line["why"] for line in lines}
            self.asked[app, target] = {name: len(self.brains[name].heard) - heard for name, heard in before.items()}
            self.reports[app, target][""] = f"{done.stdout[-2000:].decode()}\n{done.stderr[-4000:].decode()}"
        return self.reports[app, target]


@contextmanager
def staged(home: Path) -> Iterator[Stage]:
    """Everything, open; `home` must not exist yet."""
    with ExitStack() as exits:
        brains = {
            name: exits.enter_context(Brain(speaks, BRAIN_KEY))
            for name, speaks in (
                *(("chat", CHAT), ("responses", RESPONSES), ("claude", MESSAGES)),
                *(("gemini", GEMINI), ("converse", CONVERSE), ("ollama", OLLAMA)),
            )
        }
        config = CONFIG.format(
            **{name: brain.root for name, brain in brains.items()},
            chat_model=CHAT_MODEL, responses_model=RESPONSES_MODEL, claude_model=CLAUDE_MODEL,
            gemini_model=GEMINI_MODEL, converse_model=CONVERSE_MODEL, ollama_model=OLLAMA_MODEL,
        )  # fmt: skip
        gateway = GatewayProcess(home, config, POLICIES, {"BRAIN_KEY": BRAIN_KEY})
        keys = {team: str(gateway.json("keys", "create", "--team", team)["key"]) for team in POLICIES}
        gateway.start()
        exits.callback(gateway.stop)
        for program in (HERE / "apps").glob("*.mjs"):
            shutil.copy(program, INSTALLED / "node" / program.name)
        yield Stage(gateway, brains, keys)
