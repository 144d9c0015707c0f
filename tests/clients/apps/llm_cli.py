"""Simon Willison's `llm` on the command line: its OpenAI models, its Anthropic plugin, tools and schemas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from cases import BASE, CLAUDE_MODEL, KEY, MODEL, V1, case, main, token

HOME = Path.cwd() / "llm"
WEATHER = 'def weather(city: str) -> str:\n    """The weather."""\n    return "sunny in " + city\n'


def llm(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    HOME.mkdir(exist_ok=True)
    model = {"model_name": MODEL, "api_base": V1, "api_key_name": "thriftgate", "supports_tools": True}
    models = [{**model, "model_id": "mine", "supports_schema": True}, {**model, "model_id": "newer", "responses": True}]
    (HOME / "extra-openai-models.yaml").write_text(json.dumps(models))
    environment = {**os.environ, "LLM_USER_PATH": str(HOME), "ANTHROPIC_BASE_URL": BASE}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("llm")), *arguments],
        env=environment, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr
    return done


@case
def plain():
    said = token()
    assert said in llm("-m", "mine", "--key", KEY, "--no-stream", f"Say {said}").stdout


@case
def stream():
    said = token()
    assert said in llm("-m", "mine", "--key", KEY, f"Stream {said}").stdout


@case
def tools():
    said = token()
    asked = f"Weather in {said} [[use weather]]"
    assert f"sunny in {said}" in llm("-m", "mine", "--key", KEY, "--functions", WEATHER, asked).stdout


@case
def responses():
    said = token()
    assert said in llm("-m", "newer", "--key", KEY, f"Stream {said}").stdout
    asked = f"Weather in {said} [[use weather]]"
    assert f"sunny in {said}" in llm("-m", "newer", "--key", KEY, "--functions", WEATHER, asked).stdout


@case
def schema():
    said = token()
    told = llm("-m", "mine", "--key", KEY, "--no-stream", "--schema", "name, people int", f"City {said}").stdout
    assert json.loads(told) == {"name": said, "people": 7}


@case
def claude():
    said, model = token(), f"anthropic/{CLAUDE_MODEL}"
    assert said in llm("-m", model, "--key", KEY, f"Stream {said}").stdout
    asked = f"Weather in {said} [[use weather]]"
    assert f"sunny in {said}" in llm("-m", model, "--key", KEY, "--functions", WEATHER, asked).stdout


@case
def wrong_key():
    done = llm("-m", "mine", "--key", "sk-nobody", "hi", check=False)
    assert done.returncode == 1
    assert "401" in done.stderr or "invalid_api_key" in done.stderr, done.stderr


main()
