"""Knows which answers of a conversation were reported as wrong, and which of them are already left out. Every worker
reads a log of these facts. A worker that has not read the newest entries may send a wrong answer whole; this only
costs money.

The state server keeps the digest of each answer for some hours, because a report names only the id of the request. No
text is stored.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

import orjson

from gateway.dialects.clients import DIALECTS
from gateway.domain.answer import Answer
from gateway.domain.end_user import named
from gateway.domain.prompt_cache import LONG_S, SHORT_S, rules_of
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest, DialectName
from gateway.errors import StateUnavailable
from gateway.runtime.tasks import Tasks
from gateway.state.redis.connection import State
from gateway.state.redis.log import IndexLog

log = logging.getLogger(__name__)

MOST_FLAGS = 20_000
"""Maximum number of reported answers that are known. The oldest ones are forgotten."""
REPORTABLE_S = 4 * 3600
"""Seconds after an answer for which a report of the answer has an effect."""
MOST_REPORTS = 10
"""Maximum number of reports of one answer that have an effect. More of them would remove other reports from the log."""
_DIGEST_BYTES = 16


@dataclass(slots=True)
class Flag:
    """An answer that was reported as wrong."""

    turns: int
    """Number of turns of the request that got the answer. The answer follows after these turns."""
    left: bool = False
    """Whether a request was sent without the answer. Then the answer is left out of all later requests."""


class Flags:
    """The reported answers of all conversations of this gateway. The object belongs to one event loop."""

    def __init__(self, state: State, most: int = MOST_FLAGS) -> None:
        """`most`: maximum number of reported answers that are known."""
        self._state, self._most, self._log = state, most, IndexLog(state, "flags", max_length=most)
        self._known: OrderedDict[bytes, dict[bytes, Flag]] = OrderedDict()
        """Digest of a conversation → digest of an answer → its flag."""
        self._size = 0
        """Number of flags in `_known`."""
        self._tasks, self._begun = Tasks(), False

    def begin(self) -> None:
        """Start to follow the log, if that has not happened yet. Called when a policy uses the flags."""
        if not self._begun:
            self._begun = True
            self._tasks.spawn(self._log.follow(self._apply, self._clear), "flagged answers")

    async def aclose(self) -> None:
        await self._tasks.aclose()

    @property
    def current(self) -> bool:
        """Whether this worker knows all reports."""
        return self._log.current

    def of(self, conversation: bytes) -> Mapping[bytes, Flag]:
        """The answers of a conversation that were reported as wrong: digest of an answer → its flag."""
        return self._known.get(conversation, {})

    def __len__(self) -> int:
        return len(self._known)

    async def cached(self, conversation: bytes) -> bool:
        """Whether the provider's cache may still have the conversation's prompt. True if the state server is
        unavailable."""
        try:
            return bool(await self._state.call("EXISTS", self._warm(conversation)))
        except StateUnavailable:
            return True

    def answered(self, request: CompletionRequest, record: Record, answer: Answer) -> None:
        """Store which answer a request got, and that the provider's cache has its prompt. Does not wait."""
        text = "" if request.parallel > 1 else _text_of(answer, request.dialect)
        conversation, attempt = conversation_of(request, record.tenant.key.lineage), record.served_by
        lives_s = 0.0
        if attempt is not None:
            marks = attempt.marks
            marked_long = marks is not None and (marks.lives_long or any(each == "1h" for _, each in marks.earlier))
            long = marked_long or b'"1h"' in request.raw
            lives_s = LONG_S if long else max(SHORT_S, rules_of(attempt.backend.model).ttl_s)
        note = b"%b%b%d" % (conversation, digest_of(text), len(request.turns)) if text else b""
        if note or lives_s:
            self._tasks.spawn(self._note(record, conversation, lives_s, note), "flags: answered")

    async def report(self, request_id: str, team: str, wrong: bool) -> None:
        """Store that the answer to a request of `team` is wrong, or that it is right after all. Raises
        StateUnavailable."""
        answer = self._answer(request_id, team)
        note: bytes | None = await self._state.call("GET", answer)
        if note is None:
            return
        reports, _ = await self._state.pipeline((("INCR", f"{answer}:n"), ("EXPIRE", f"{answer}:n", REPORTABLE_S)))
        if reports <= MOST_REPORTS:
            conversation, text, turns = _read(note)
            await self._append(conversation, text, turns, b"wrong" if wrong else b"right")

    def leave_out(self, conversation: bytes, text: bytes) -> None:
        """Store that an answer is left out from now on. Does not wait."""
        flag = self._known.get(conversation, {}).get(text)
        if flag is not None and not flag.left:
            flag.left = True
            self._tasks.spawn(self._announce(conversation, text, flag.turns), "flags: left out")

    async def _announce(self, conversation: bytes, text: bytes, turns: int) -> None:
        try:
            await self._append(conversation, text, turns, b"left")
        except StateUnavailable as error:  # other workers may send the answer whole once more
            log.debug("an answer that is left out was not announced: %s", error)

    async def _append(self, conversation: bytes, text: bytes, turns: int, what: bytes) -> None:
        await self._log.append({"of": conversation, "text": text, "turns": b"%d" % turns, "what": what})

    async def _note(self, record: Record, conversation: bytes, lives_s: float, note: bytes) -> None:
        commands: list[tuple[str | bytes | int | float, ...]] = []
        if note:
            answer = self._answer(record.request_id, record.tenant.team)
            commands.append(("SET", answer, note, "EX", REPORTABLE_S))
        if lives_s:
            commands.append(("SET", self._warm(conversation), b"1", "EX", int(lives_s)))
        try:
            await self._state.pipeline(commands)
        except StateUnavailable as error:  # then a report of this answer has no effect
            log.debug("an answer was not noted for reports: %s", error)

    def _apply(self, _: str, fields: dict[bytes, bytes]) -> None:
        conversation, text, what = fields[b"of"], fields[b"text"], fields[b"what"]
        flags = self._known.setdefault(conversation, {})
        self._known.move_to_end(conversation)
        before = len(flags)
        if what == b"right":
            if (flag := flags.get(text)) is not None and not flag.left:
                del flags[text]
        else:
            flag = flags.setdefault(text, Flag(int(fields[b"turns"])))
            flag.left = flag.left or what == b"left"
        self._size += len(flags) - before
        if not flags:
            del self._known[conversation]
        if self._size > self._most:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        conversation, flags = next(iter(self._known.items()))
        del flags[next(iter(flags))]
        self._size -= 1
        if not flags:
            del self._known[conversation]

    def _clear(self) -> None:
        self._known.clear()
        self._size = 0

    def _answer(self, request_id: str, team: str) -> str:
        return self._state.key("flags", "answer", team, request_id)

    def _warm(self, conversation: bytes) -> str:
        return self._state.key("flags", "cached", conversation.hex())


def conversation_of(request: CompletionRequest, lineage: str) -> bytes:
    """A digest that identifies a conversation. It is made from the API key, the end user and the session's name.
    `lineage`: the API key and all keys that it replaced.

    Without a session name, the first words of the user are used instead. The end user is included because sessions of
    several end users may have the same name or words.
    """
    name = request.controls.session or request.agent_session
    if not name:
        name = "\0" + next((turn.text for turn in request.turns if turn.role == "user"), "")
    return _digest(f"{lineage}\0{named(request.body, request.controls.end_user)}\0{name}")


def digest_of(text: str) -> bytes:
    """Digest of an answer's text. White space does not count, because clients change it."""
    return _digest("".join(text.split()))


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()


def _read(note: bytes) -> tuple[bytes, bytes, int]:
    return note[:_DIGEST_BYTES], note[_DIGEST_BYTES : 2 * _DIGEST_BYTES], int(note[2 * _DIGEST_BYTES :])


def _text_of(answer: Answer, dialect: DialectName) -> str:
    """The text of an answer; empty if it is incomplete or calls tools."""
    body = answer.completion() if answer.complete else None
    if body is None:
        return ""
    choices = answer.choices or DIALECTS[dialect].choices(orjson.loads(body))
    message = choices[0].get("message") if choices else None
    if type(message) is not dict or message.get("tool_calls"):
        return ""
    text = message.get("content")
    return text if type(text) is str else ""
