"""Reads `usage` in OpenAI's format and its vendors' variants into token classes that do not overlap."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.domain.money.usage import Usage

ABSURD_TOKENS = 100_000_000
"""No window is that large; who says more is not to be believed."""

Fees = tuple[tuple[str, int], ...]
_Object = dict[str, Any]

_PROMPT = ("prompt_tokens", "input_tokens")
_COMPLETION = ("completion_tokens", "output_tokens")
_READ = ("prompt_tokens_details", "input_tokens_details", "input_token_details", "prompt_token_details")
_WROTE = ("completion_tokens_details", "output_tokens_details", "output_token_details", "completion_token_details")
"""Transcriptions and realtime sessions have the singular."""
_CACHED = ("prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens", "cache_read_input_tokens")
"""Beside the prompt's count instead of in its details: DeepSeek, Moonshot, Mistral, relays of Anthropic's models."""
_WRITTEN = "cache_creation_input_tokens"
_MISSED = "prompt_cache_miss_tokens"
_REASONING = ("reasoning_tokens", "thinking_tokens", "thoughts_token_count", "thoughts_tokens")
_USUAL = frozenset((*_PROMPT[:1], *_COMPLETION[:1], "total_tokens", *_READ[:1], *_WROTE[:1]))


class Counts:
    """Reads numbers of tokens; what nobody can believe counts 0, and its class stands in `doubts`."""

    def __init__(self) -> None:
        self.doubts: set[str] = set()

    def count(self, value: object, name: str) -> int:
        """A number of tokens of the class `name`, 0 for an absent one. Some servers write numbers as strings."""
        if type(value) is int and 0 <= value < ABSURD_TOKENS:
            return value
        if value is None:
            return 0
        if type(value) is str and value.isascii() and value.isdigit() and len(value) < len(str(ABSURD_TOKENS)):
            return int(value)
        if type(value) is float and value.is_integer() and 0 <= value < ABSURD_TOKENS:
            return int(value)
        self.doubts.add(name)
        return 0

    def first(self, said: _Object, keys: Iterable[str], name: str) -> int:
        """The count under the first of `keys` that has one."""
        return next((number for key in keys if (number := self.count(said.get(key), name))), 0)

    @property
    def doubt(self) -> str:
        """As `Usage.doubt` has it."""
        return "+".join(sorted(self.doubts))


def openai_usage(value: object, *, tier: str = "", fees: Fees = ()) -> Usage | None:
    """None when nothing was counted. `tier` and `fees`: what the answer says beside, as `Usage` has it.

    Numbers that cannot be true, by themselves or beside each other, are named in `doubt`, and the higher bill is kept.
    """
    if type(value) is not dict:
        return None
    prompt, completion = value.get("prompt_tokens"), value.get("completion_tokens")
    if (
        type(prompt) is int
        and type(completion) is int
        and prompt > 0 <= completion
        and value.get("total_tokens") == (total := prompt + completion)
        and total < ABSURD_TOKENS
        and (
            len(value) == 3
            or (
                value.get("prompt_tokens_details") is None
                and value.get("completion_tokens_details") is None
                and value.keys() <= _USUAL
            )
        )
    ):
        return Usage(prompt, output_tokens=completion, service_tier=tier, fees=fees)
    return _Reading(value).usage(tier, fees)


def any_usage(value: object, *, tier: str = "", fees: Fees = ()) -> Usage | None:
    """The same from an endpoint that counts as chat does, as responses do, in Cohere's billed units, or only in total,
    which is input then."""
    if type(value) is not dict:
        return None
    if type(units := value.get("billed_units")) is dict:
        value = units
    elif not any(key in value for key in (*_PROMPT, *_COMPLETION)):
        value = {"prompt_tokens": value.get("total_tokens")}
    return openai_usage(value, tier=tier, fees=fees)


def usage_with(usage: Usage | None, tier: str, fees: Fees = ()) -> Usage | None:
    """`usage` as served at `tier`; one without counts where only the tier is known, None where nothing is."""
    if usage is not None or not (tier or fees):
        return usage
    return Usage(service_tier=tier, fees=fees)


def later(reported: Usage | None, before: Usage | None) -> Usage | None:
    """Of two reports of one answer the later, unless it is none, or counts less in a way that cannot be true."""
    if reported is None or before is None:
        return reported or before
    odd = reported.doubt or not reported.all_input
    return before if odd and reported.total < before.total else reported


def counted(usage: Usage | None, estimated_input: int) -> Usage:
    """`usage`, or where not even the input was counted, the gateway's estimate of that."""
    if usage is not None and usage.all_input:
        return usage
    doubt = usage.doubted("input_tokens") if usage is not None else ""
    return Usage(estimated_input, estimated=True, doubt=doubt)


def shown(usage: Usage | None) -> Usage | None:
    """`usage` as a client may be told it: None where not even the prompt was counted."""
    return usage if usage is not None and usage.all_input else None


class _Reading:
    """One usage object: cache reads and writes are parts of the prompt, reasoning of the completion.

    Except where the numbers show that a backend counts reasoning, reads or writes beside.
    """

    def __init__(self, said: _Object) -> None:
        counts = self._counts = Counts()
        self._said, self._read, self._wrote = said, _group(said, _READ), _group(said, _WROTE)
        self._counted = any(said.get(key) is not None for key in (*_PROMPT, *_COMPLETION, "total_tokens"))
        self._prompt = counts.first(said, _PROMPT, "input_tokens")
        self._completion = counts.first(said, _COMPLETION, "output_tokens")
        self._total = counts.count(said.get("total_tokens"), "total_tokens")
        self._knows_total = said.get("total_tokens") is not None and "total_tokens" not in counts.doubts
        missing = self._total - self._prompt - self._completion
        if missing > 0 and not self._prompt:
            self._prompt = missing
        elif missing > 0 and "output_tokens" in counts.doubts:
            self._completion = missing

    def usage(self, tier: str, fees: Fees) -> Usage | None:
        if not self._counted:
            return None
        cached, fresh = self._cache()
        written = self._counts.count(self._read.get("cache_write_tokens"), "cache_write_tokens")
        written = written or self._counts.count(self._said.get(_WRITTEN), "cache_write_tokens")
        fresh, heard, shown_ = self._seen(fresh)
        if written <= fresh:
            fresh -= written
        reasoning, audio, drawn, output = self._output(fresh + cached + written + heard + shown_)
        return Usage(
            input_tokens=fresh,
            cached_tokens=cached,
            cache_write_5m_tokens=written,
            output_tokens=output,
            reasoning_tokens=reasoning,
            audio_tokens=audio,
            audio_input_tokens=heard,
            image_input_tokens=shown_,
            image_tokens=drawn,
            service_tier=tier,
            fees=fees,
            doubt=self._counts.doubt,
        )

    def _cache(self) -> tuple[int, int]:
        """Of the prompt, what was read from the cache, and what was not. A discount that cannot be is not believed."""
        counts, doubts = self._counts, self._counts.doubts
        cached = counts.count(self._read.get("cached_tokens"), "cached_tokens")
        beside = counts.first(self._said, _CACHED, "cached_tokens")
        if cached and beside and cached != beside:
            doubts.add("cached_tokens")
        cached = min(cached, beside) if cached and beside else cached or beside
        missed = counts.count(self._said.get(_MISSED), "cached_tokens")
        if missed and not self._prompt:
            self._prompt = cached + missed
        if cached > self._prompt:
            if self._prompt and self._total == self._prompt + self._completion + cached:
                return cached, self._prompt
            doubts.add("cached_tokens")
            cached = 0
        elif missed and missed != self._prompt - cached:
            doubts.add("cached_tokens")
            cached = min(cached, max(0, self._prompt - missed))
        return cached, self._prompt - cached

    def _seen(self, fresh: int) -> tuple[int, int, int]:
        """Of the fresh input, text, sound and images; what of these was cached is known where the details say it."""
        counts, within = self._counts, self._read.get("cached_tokens_details")
        within = within if type(within) is dict else {}
        heard, shown_ = (
            max(0, counts.count(self._read.get(name), name) - counts.count(within.get(name), "cached_tokens"))
            for name in ("audio_tokens", "image_tokens")
        )
        if heard + shown_ > fresh:
            if fresh < self._prompt:  # some of it was cached, and nobody says how much
                return fresh, 0, 0
            counts.doubts.add("audio_tokens" if heard else "image_tokens")
            heard = min(heard, fresh)
            shown_ = fresh - heard
        return fresh - heard - shown_, heard, shown_

    def _output(self, all_input: int) -> tuple[int, int, int, int]:
        """Reasoning, speech, images and text."""
        counts, doubts = self._counts, self._counts.doubts
        audio = counts.count(self._wrote.get("audio_tokens"), "audio_tokens")
        drawn = counts.count(self._wrote.get("image_tokens"), "image_tokens")
        reasoning = counts.first(self._wrote, _REASONING, "reasoning_tokens")
        reasoning = reasoning or counts.first(self._said, _REASONING, "reasoning_tokens")
        if audio + drawn > self._completion:
            doubts.add("audio_tokens" if audio else "image_tokens")
            audio = min(audio, self._completion)
            drawn = self._completion - audio
        text = self._completion - audio - drawn
        more = self._total - all_input - self._completion if self._knows_total else 0
        if more < 0 and self._total == self._prompt + self._completion:
            more = 0
        if more < 0:
            doubts.add("total_tokens")
        if reasoning > text or more == reasoning:  # counted beside, as xAI does
            if reasoning > text and more != reasoning:
                doubts.add("reasoning_tokens")
            more = max(0, more - reasoning)
        else:
            text -= reasoning
        if more > 0:  # counted nowhere else: thoughts, as Google does
            if reasoning:
                doubts.add("total_tokens")
            reasoning += more
        return reasoning, audio, drawn, text


def _group(said: _Object, names: Iterable[str]) -> _Object:
    """The first of the groups `names` that is there."""
    return next((group for name in names if type(group := said.get(name)) is dict), {})
