"""What the scripted upstream of the clients' tests answers: decided from a prompt and its markers.

A prompt holds a token `tok-…` that the answer repeats, and may hold markers: `[[use weather]]` calls that tool with
the token as its arguments, `[[write /a/file]]` has a coding agent write the token into a file with whatever tool it
offers, `[[whole a/file]]` answers with a file listing, `[[think]]` thinks first, `[[fail 429]]` refuses, `[[break]]`
hangs up in the middle of a stream, `[[length]]` ends as if the answer were cut at its limit. Once a tool's result is
there, the answer is a text that repeats it.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

TOKEN = re.compile(r"tok-[0-9a-f]{10}")
_MARKER = re.compile(r"\[\[(\w+)((?: [^\s\]]+)*)\]\]")
_WORD = re.compile(r"\s*\S+\s*$|\s*\S+")
_WRITERS: dict[str, str] = {"Write": "file_path", "write": "filePath", "write_file": "file_path"}
"""Tools of coding agents that write a file, and the argument that is its path."""
_SHELLS: dict[str, str] = {"exec_command": "cmd", "shell_command": "command", "shell": "command", "Bash": "command"}
"""Tools of coding agents that run a command, and the argument that is the command."""


@dataclass(frozen=True)
class Turn:
    role: Literal["system", "user", "assistant", "tool"]
    text: str


@dataclass(frozen=True)
class Tool:
    """What may be called: a function with a JSON schema, or a custom tool that takes any text."""

    schema: dict[str, Any] = field(default_factory=dict)
    custom: bool = False
    namespace: str = ""


@dataclass(frozen=True)
class Question:
    """One request, as far as it decides the answer."""

    turns: tuple[Turn, ...]
    tools: dict[str, Tool] = field(default_factory=dict)
    """By name."""
    forced: bool = False
    """Some tool must be called."""
    wanted: str = ""
    """This tool must be called."""
    schema: dict[str, Any] | None = None
    """What the text must be an instance of."""
    thinks: bool = True
    """Thoughts were asked for, or come unasked."""


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any]
    tool: Tool = field(default_factory=Tool)

    @property
    def json(self) -> str:
        return orjson.dumps(self.arguments).decode()

    @property
    def given(self) -> str:
        """What the tool is given: JSON, or the text of a custom tool."""
        return str(self.arguments["input"]) if self.tool.custom else self.json


@dataclass(frozen=True)
class Answer:
    """One answer. Usage is counted in words."""

    text: str = ""
    thought: str = ""
    calls: tuple[Call, ...] = ()
    broken: bool = False
    """A stream of it ends in the middle."""
    cut: bool = False
    """It ended at the limit of its length."""
    input_tokens: int = 1
    number: int = field(default_factory=itertools.count(1).__next__)
    """Makes the answer's ids its own: agents take two messages of one id for the same."""

    @property
    def words(self) -> list[str]:
        return _WORD.findall(self.text)

    @property
    def thought_words(self) -> list[str]:
        return _WORD.findall(self.thought)

    @property
    def output_tokens(self) -> int:
        said = " ".join([self.text, self.thought, *(call.json for call in self.calls)])
        return max(1, len(said.split()))


class Refused(Exception):
    """The prompt asked for this status, or the request breaks a rule of the vendor."""

    def __init__(self, status: int, why: str = "") -> None:
        super().__init__(why or f"Scripted refusal with status {status}.")
        self.status = status


def decide(asked: Question) -> Answer:
    """The answer. Raises Refused when the prompt asks for it."""
    at = _prompt_at(asked)
    prompt = asked.turns[at].text if asked.turns else ""
    marks = {found[1]: found[2].split() for found in _MARKER.finditer(prompt)}
    if "fail" in marks:
        raise Refused(int(marks["fail"][0]))
    results = [turn.text for turn in asked.turns[at + 1 :] if turn.role == "tool"]
    words = " ".join(dict.fromkeys(TOKEN.findall(prompt))) or prompt[:200]
    calls = _calls(asked, marks, words, bool(results))
    return Answer(
        text="" if calls else _text(asked, marks, prompt, words, results),
        thought=f"I was asked about {words}, let me think." if "think" in marks and asked.thinks else "",
        calls=calls,
        broken="break" in marks,
        cut="length" in marks,
        input_tokens=sum(len(turn.text.split()) for turn in asked.turns) or 1,
    )


def _prompt_at(asked: Question) -> int:
    """Where the prompt stands: agents append reminders of their own behind it, in the user's name."""
    users = [number for number, turn in enumerate(asked.turns) if turn.role == "user"]
    tokens = [number for number in users if TOKEN.search(asked.turns[number].text)]
    return (tokens or users or [0])[-1]


def _calls(asked: Question, marks: dict[str, list[str]], words: str, answered: bool) -> tuple[Call, ...]:
    if asked.wanted:
        return (_call(asked, asked.wanted, words),)
    if not answered:
        if named := [name for name in marks.get("use", ()) if name in asked.tools]:
            return tuple(_call(asked, name, words) for name in named)
        if "write" in marks and (call := _writing(asked, marks["write"][0], words)):
            return (call,)
    if asked.forced and asked.tools:
        return (_call(asked, list(asked.tools)[-1], words),)  # frameworks put the final answer's tool last
    return ()


def _call(asked: Question, name: str, words: str) -> Call:
    tool = asked.tools.get(name, Tool())
    return Call(name, {"input": words} if tool.custom else instance(tool.schema, words), tool)


def _writing(asked: Question, path: str, words: str) -> Call | None:
    """The agent's own way to write a file, out of the tools that it offers."""
    for name, argument in _WRITERS.items():
        if name in asked.tools:
            return Call(name, {argument: path, "content": words + "\n"})
    line = f"echo {words} > {path}"
    for name, tool in asked.tools.items():
        if argument := _SHELLS.get(name):
            kind = tool.schema.get("properties", {}).get(argument, {}).get("type")
            return Call(name, {argument: ["sh", "-c", line] if kind == "array" else line}, tool)
        if name.endswith("exec"):  # runs JavaScript, with the shell as one of its functions
            return Call(name, {"input": f'text(await tools.exec_command({{cmd: "{line}"}}))'}, tool)
    return None


def _text(asked: Question, marks: dict[str, list[str]], prompt: str, words: str, results: list[str]) -> str:
    if asked.schema is not None:
        return orjson.dumps(instance(asked.schema, words)).decode()
    if results:
        return f"About {words} the tools said: {' and '.join(result[-300:] for result in results)}"
    if "whole" in marks:
        return f"{marks['whole'][0]}\n```\n{words}\n```\n"
    return f"You said: {prompt if len(prompt) < 400 else words}"


def instance(schema: dict[str, Any], words: str, root: dict[str, Any] | None = None) -> Any:
    """A value that `schema` allows, with `words` wherever a free string may stand."""
    root = schema if root is None else root
    if "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return instance(target, words, root)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return instance(schema[several][0], words, root)
    return _of_type(schema, words, root)


def _of_type(schema: dict[str, Any], words: str, root: dict[str, Any]) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            return {name: instance(inner, words, root) for name, inner in schema.get("properties", {}).items()}
        case "array":
            return [instance(schema.get("items", {}), words, root)]
        case "integer":
            return 7
        case "number":
            return 1.5
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return words
