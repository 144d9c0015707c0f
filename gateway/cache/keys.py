"""Computes the exact key of a request, and the question for semantic look-ups. The question includes a hash of
everything else that must be equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any

import orjson

from gateway.dialects.canonical import canonical
from gateway.dialects.facts import FACTS
from gateway.domain.continued import Notes
from gateway.domain.end_user import named
from gateway.domain.policy import without_later
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant

if TYPE_CHECKING:
    from hashlib import _Hash

MAX_TEMPERATURE = 0.3
"""Maximum temperature of a request for a semantic look-up. If the temperature is higher or missing, the client expects
answers that vary."""
LONGEST_QUESTION = 6000
"""Maximum characters of a question. A longer question does not fit the window of an embedder."""

_MOST_SEEDS = 10_000
_DIGEST_BYTES = 16
_KEPT_HASHES = 8
"""Number of last items of a conversation whose hashes are kept, because a later request may change some of them."""

_TEXT_PARTS = ("text", "input_text")
_SHAPING = ("models", "cache", "context", "data", "mode", "share")
"""Sections of a policy that influence the answer to a question."""


@dataclass(frozen=True, slots=True)
class Question:
    """The last user message, and a hash of everything else that must be equal for a hit."""

    partition: bytes
    text: str


def scope(tenant: Tenant) -> str:
    """The scope of `tenant`, which the tenant's policy sets: one key, one team or several teams. Requests share answers
    only within one scope."""
    match tenant.policy.cache.scope:
        case "key":
            return f"key/{tenant.organisation}/{tenant.team}/{tenant.key.lineage}"
        case "team":
            return f"team/{tenant.organisation}/{tenant.team}"
        case "organisation":
            return f"organisation/{tenant.organisation}"
        case "public":
            return "public"


def asker(request: CompletionRequest, tenant: Tenant) -> str:
    """A hash of the API key and the end user of the request. Without an end user, the session is used. Empty if the
    request names neither.

    A semantic hit is refused if the same asker would get the same answer again, because someone who repeats a question
    wants another answer.
    """
    who = named(request.body, request.controls.end_user) or request.controls.session
    return blake2b(f"{tenant.key.lineage}/{who}".encode(errors="replace"), digest_size=8).hexdigest() if who else ""


def epoch(tenant: Tenant) -> str:
    """A value that changes when the tenant's policy changes. If teams share answers, only the sections that
    influence answers count.
    """
    if tenant.policy.cache.scope in ("key", "team"):
        return tenant.epoch
    without = {"context": {"prompt_cache", "old_outputs", "holdout", "keep_alive"}, "data": {"store_samples"}}
    shaping = tenant.policy.model_dump(mode="json", include=set(_SHAPING), exclude=without)
    return blake2b(without_later(orjson.dumps(shaping, option=orjson.OPT_SORT_KEYS)), digest_size=8).hexdigest()


class Keys:
    """Computes the keys of requests for one `revision`. The hash is SHA-256, cut to 16 bytes."""

    def __init__(self, revision: str) -> None:
        self._revision = revision
        self._seeds: dict[tuple[str, str, str], tuple[Tenant, _Hash]] = {}

    def digest(self, request: CompletionRequest, tenant: Tenant) -> bytes:
        """The exact key of a request. Two requests have equal keys if everything that influences the answer is
        equal."""
        body, notes = canonical(request), request.notes
        if notes is not None:
            items = body.get(name := request.input_field)
            if type(items) is list and items is request.body[name]:
                return _hash_continued(self._seed(request, tenant, ""), request, body, notes)
        return self._hash(request, tenant, "", body)

    def question(self, request: CompletionRequest, tenant: Tenant, embedder: str) -> Question | None:
        """The question for the semantic cache; None if the request must not use the semantic cache. `embedder`: name of
        the embedder."""
        policy = tenant.policy.cache.semantic
        if not policy.enabled or request.parallel != 1 or request.needs or not request.turns:
            return None
        if not policy.sampled and (request.temperature is None or request.temperature > MAX_TEMPERATURE):
            return None
        last = request.turns[-1]
        if last.role != "user" or last.images or last.files or not 0 < len(last.text.strip()) <= LONGEST_QUESTION:
            return None
        around = _without_last_text(request, last.index)
        if around is None:
            return None
        return Question(self._hash(request, tenant, f"by meaning, {embedder}", around), last.text)

    def _hash(self, request: CompletionRequest, tenant: Tenant, what: str, body: dict[str, Any]) -> bytes:
        hashed = self._seed(request, tenant, what)
        hashed.update(orjson.dumps(body, option=orjson.OPT_SORT_KEYS))
        return hashed.digest()[:_DIGEST_BYTES]

    def _seed(self, request: CompletionRequest, tenant: Tenant, what: str) -> _Hash:
        """Begin a hash with everything that belongs to the key except the body. `what`: the kind of key."""
        controls = request.controls
        betas = []
        if request.headers:
            betas = sorted(value for name, value in request.headers.items() if name.endswith(b"-beta"))
        if controls.tier or controls.untouched or controls.cache_scope or betas:
            return self._around(request, tenant, what, betas)
        name = (tenant.key.id, request.dialect, what)
        known = self._seeds.get(name)
        if known is None or known[0] is not tenant:
            if len(self._seeds) >= _MOST_SEEDS:
                self._seeds.clear()
            known = self._seeds[name] = tenant, self._around(request, tenant, what, betas)
        return known[1].copy()

    def _around(self, request: CompletionRequest, tenant: Tenant, what: str, betas: list[bytes]) -> _Hash:
        controls = request.controls
        around = (
            *(scope(tenant), epoch(tenant), self._revision, what),
            *(() if tenant.access is None else (tenant.access.mark,)),
            *(("within", controls.cache_scope) if controls.cache_scope else ()),
            *(request.dialect, controls.tier, controls.untouched, [beta.decode("latin-1") for beta in betas]),
        )
        return sha256(orjson.dumps(around))


def _hash_continued(hashed: _Hash, request: CompletionRequest, body: dict[str, Any], notes: Notes) -> bytes:
    """The exact key of a conversation. The items that an earlier request has hashed are not hashed again. `hashed`: the
    hash object after the data before the body.

    For the conversation's next request, `notes` gets copies of the hash object, one after each of the last items.
    """
    name = request.input_field
    items: list[Any] = body[name]
    before = {each: value for each, value in body.items() if each < name}
    after = {each: value for each, value in body.items() if each > name}
    opening = b"%b%b[" % (_written(before)[:-1] + b"," if before else b"{", orjson.dumps(name) + b":")
    notes.before, done = hashed.digest() + opening, 0
    hashed.update(opening)
    continued = request.continued
    if continued is not None and continued.body[name] is items and continued.earlier.before == notes.before:
        done = max([count for count in continued.earlier.hashes if count <= continued.shared], default=0)
        hashed = continued.earlier.hashes[done].copy() if done else hashed
    for count in range(max(done, len(items) - _KEPT_HASHES), len(items) + 1):
        if count > done:
            hashed.update((b"," if done else b"") + _written(items[done:count])[1:-1])
            done = count
        notes.hashes[count] = hashed.copy()
    hashed.update(b"],%b" % _written(after)[1:] if after else b"]}")
    return hashed.digest()[:_DIGEST_BYTES]


def _written(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _without_last_text(request: CompletionRequest, index: int) -> dict[str, Any] | None:
    """The canonical body without the text of the last message. None if the last message contains anything but text.
    `index`: index of the last message."""
    body = canonical(request)
    name = FACTS[request.dialect].text_field
    messages = body.get(name)
    if isinstance(messages, str):
        return {**body, name: None}
    if not isinstance(messages, list) or index != len(messages) - 1:
        return None
    last = dict(messages[index])
    content = last.pop("content", None)
    if not isinstance(content, str):
        if not (isinstance(content, list) and len(content) == 1 and content[0].get("type") in _TEXT_PARTS):
            return None
        last["part"] = {field: value for field, value in content[0].items() if field != "text"}
    return {**body, name: [*messages[:index], last]}
