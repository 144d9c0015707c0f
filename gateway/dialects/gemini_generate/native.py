"""Translates between a Gemini client and a Gemini backend: the client's own fields and the backend's own answer are
passed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from gateway.dialects.answers.plain import Plain
from gateway.dialects.gemini_generate.answer import GeminiWriter, event
from gateway.dialects.gemini_generate.request import OWN
from gateway.dialects.openai_chat.message import overall_finish
from gateway.dialects.openai_chat.plain import load_reply
from gateway.dialects.translate.chat_to_gemini.body import LEVELLED, UNSIGNED
from gateway.dialects.translate.chat_to_gemini.reply import completion, parts, usage
from gateway.dialects.translate.chat_to_gemini.stream import GeminiStream
from gateway.dialects.translate.chat_to_gemini.translator import ChatToGemini, name_of
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan

Part = dict[str, Any]
_PASSED = ("tools", "toolConfig", "generationConfig", "safetySettings", "labels")


class GeminiToGemini(ChatToGemini):
    """Implements `Translator` for a Gemini client with a Gemini backend."""

    client: DialectName = "gemini_generate"

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        own = request.echoed[OWN]
        found = {**_prompt(own, plan or ContextPlan(0, 0)), **{name: own[name] for name in _PASSED if own.get(name)}}
        _mark_foreign(found["contents"], signs=bool(LEVELLED.search(model)))
        if max_output_tokens is not None:
            found["generationConfig"] = {**found.get("generationConfig", {}), "maxOutputTokens": max_output_tokens}
        return orjson.dumps(found)

    def reader(self, request: CompletionRequest) -> GeminiRelay:
        return GeminiRelay(request, int(self._clock()))

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        reply = load_reply(body)
        choices = completion(reply, {}, f"call_{name_of(request)}")["choices"]
        finish = overall_finish(choice["finish_reason"] for choice in choices)
        return Plain(body, usage(reply.get("usageMetadata")), finish, None, choices)


def _prompt(own: dict[str, Any], plan: ContextPlan) -> dict[str, Any]:
    """The contents and the system instruction that remain after trimming. `own`: the client's request.

    `plan` has the indexes of chat messages. The parser makes the chat messages from the contents, in the same order.
    """
    found: dict[str, Any] = {}
    number = 0
    if system := "\n".join(part.get("text") or "" for part in _parts(own.get("systemInstruction"))):
        if number not in plan.drop:
            kept = _shortened(_parts(own["systemInstruction"]), plan.replace.get(number))
            found["systemInstruction"] = {"parts": kept}
        number += bool(system)
    contents, given = [], own["contents"]
    for content in given if type(given) is list else [given]:
        role, kept = content.get("role"), list[Part]()
        for message in _messages(_parts(content), role):
            kept += () if number in plan.drop else _shortened(message, plan.replace.get(number))
            number += 1
        if kept:
            contents.append({**({"role": role} if role else {}), "parts": kept})
    return {**found, "contents": contents}


def _parts(content: Any) -> list[Part]:
    if content is None:
        return []
    return [{"text": content}] if type(content) is str else [dict(part) for part in content["parts"]]


def _messages(given: list[Part], role: Any) -> Iterator[list[Part]]:
    """Divide the parts of one content into groups. The parser makes one chat message from each group. `role`: the role
    of the content."""
    if role == "model":
        yield given
        return
    results = [part for part in given if "functionResponse" in part]
    yield from ([part] for part in results)
    others = [part for part in given if "functionResponse" not in part]
    if others:
        yield others


def _shortened(given: list[Part], text: str | None) -> list[Part]:
    """The parts `given` with their text replaced by `text`. None: the parts are not changed."""
    if text is None:
        return given
    if "functionResponse" in given[0]:
        return [{"functionResponse": {**given[0]["functionResponse"], "response": {"result": text}}}]
    texts = [part for part in given if type(part.get("text")) is str and not part.get("thought")]
    first = texts[0] if texts else None
    kept = [{**part, "text": text} if part is first else part for part in given if part is first or part not in texts]
    return kept if texts else [*kept, {"text": text}]


def _mark_foreign(contents: list[dict[str, Any]], *, signs: bool) -> None:
    """Prepare calls that another model made: in each turn without any signature, mark the first call as unsigned.

    The ids of the turn's calls are removed, because Vertex AI has no ids. `signs`: whether the model refuses calls
    without a signature.
    """
    own = set[Any]()
    for content in contents:
        calls = [part for part in content["parts"] if "functionCall" in part]
        if any(part.get("thoughtSignature") for part in content["parts"]):
            own |= {part["functionCall"].get("id") for part in calls}
        elif calls and signs:
            calls[0]["thoughtSignature"] = UNSIGNED
        for part in content["parts"]:
            for name in ("functionCall", "functionResponse"):
                if name in part and part[name].get("id") not in own:
                    part[name] = {field: value for field, value in part[name].items() if field != "id"}


class GeminiRelay(GeminiStream):
    """Implements `StreamReader` for a Gemini client with a Gemini backend. Passes the events on. Also reads the events
    as chat chunks, for the gateway's own use."""

    def __init__(self, request: CompletionRequest, created: int) -> None:
        super().__init__(wants_usage=True, created=created, name=name_of(request), model=request.model)
        self._request = request
        self._passed: list[dict[str, Any]] = []
        """The events of the current read that are sent to the client."""
        self._held: list[dict[str, Any]] = []
        """The events from the finish reason on. They are sent when the cost has been booked."""
        self._beside: dict[str, Any] = {}
        self._candidate: dict[str, Any] = {}
        self._answer: list[Part] = []
        """The whole answer so far. `_beside`: fields of the answer. `_candidate`: fields of its candidate. `_answer`:
        the parts."""
        self._several = False

    def _relay(self, block: bytes) -> bytes:
        super()._relay(block)
        passed, self._passed = self._passed, []
        return b"".join(map(event, passed))

    def _take_last(self, event: bytes) -> None:
        self._relay(event)

    def _take(self, parsed: Any) -> bytes:
        written = super()._take(parsed)
        if not self._failure:
            (self._held if self.finish else self._passed).append(parsed)
        return written

    def _texts(self, values: list[dict[str, Any]], start: int) -> list[str]:
        texts = super()._texts(values, start)
        alike = values[start : start + len(texts)]
        self._passed += alike
        for parsed in alike:
            self._note(parsed)
        if texts:
            self._keep({"text": "".join(texts)})
        return texts

    def _written(self, parsed: dict[str, Any]) -> bytes:
        written = super()._written(parsed)
        self._note(parsed)
        for each in (parsed.get("candidates") or [])[:1]:
            for part in parts(each):
                self._keep(part)
        return written

    def _note(self, parsed: dict[str, Any]) -> None:
        """Add the fields of an event, except for its parts, to the whole answer."""
        self._beside |= parsed
        for place, each in enumerate(parsed.get("candidates") or ()):
            self._several = self._several or (each.get("index") or 0) > 0
            if not place:
                self._candidate |= each

    def _keep(self, part: Part) -> None:
        """Add a part to the answer. If the part is a text, and the last part has the same fields and no signature, the
        text is appended to the last part."""
        last = self._answer[-1] if self._answer else {}
        same = last.keys() == part.keys() <= {"text", "thought"} and last.get("thought") == part.get("thought")
        if same and "text" in part:
            last["text"] += part["text"]
        else:
            self._answer.append(dict(part))

    def eof(self) -> None:
        super().eof()
        self.ending = b"".join(map(event, self._held))

    def cut(self, delivered: Usage) -> bytes:
        return GeminiWriter(self._request).end("length", delivered)

    def completion(self) -> bytes | None:
        """The whole answer. None if it is incomplete, or if the stream had several candidates."""
        if self._several or super().completion() is None:
            return None
        beside = {name: value for name, value in self._beside.items() if name != "candidates"}
        whole = {**self._candidate, "content": {"role": "model", "parts": self._answer}}
        return orjson.dumps({"candidates": [whole], **beside} if self._candidate else beside)
