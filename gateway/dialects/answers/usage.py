"""Reads `usage` in OpenAI's format and its variants into token classes that do not overlap."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from gateway.domain.money.usage import Usage
from gateway.domain.units import PICO_PER_USD

ABSURD_TOKENS = 100_000_000
"""A token count of this size or more is rejected as impossible, because no model has such a large context window."""
_ABSURD_USD = 100_000
"""If the cost of one call is this number of US dollars or more, the cost is rejected as impossible."""

Fees = tuple[tuple[str, int], ...]
_Object = dict[str, Any]

_PROMPT = ("prompt_tokens", "input_tokens")
_COMPLETION = ("completion_tokens", "output_tokens")
_READ = ("prompt_tokens_details", "input_tokens_details", "input_token_details", "prompt_token_details")
_WROTE = ("completion_tokens_details", "output_tokens_details", "output_token_details", "completion_token_details")
"""Names of the objects with details about the output tokens. Transcriptions and realtime sessions use the singular
name."""
_CACHED = ("prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens", "cache_read_input_tokens")
"""Names of fields with the number of cached tokens. Some providers report these fields beside the number of prompt
tokens instead of in its details (DeepSeek, Moonshot, Mistral, relays of Anthropic)."""
_WRITTEN = "cache_creation_input_tokens"
_MISSED = "prompt_cache_miss_tokens"
_REASONING = ("reasoning_tokens", "thinking_tokens", "thoughts_token_count", "thoughts_tokens")
_CHAT, _RESPONSES = ((_PROMPT[n], _COMPLETION[n], "total_tokens", _READ[n], _WROTE[n]) for n in (0, 1))
"""The usual names of the fields."""


class Counts:
    """Reads token counts. An impossible count becomes 0, and the name of its token class is added to `doubts`."""

    def __init__(self) -> None:
        self.doubts: set[str] = set()

    def count(self, value: object, name: str) -> int:
        """Read `value`, the count of the token class `name`; 0 if `value` is None. Numbers in strings are accepted,
        because some servers write them."""
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

    def first(self, report: _Object, keys: Iterable[str], name: str) -> int:
        """The first count in `report` that is not 0, among the fields `keys`; 0 if there is none. `name`: the token
        class of the count."""
        for key in keys:
            if (value := report.get(key)) is not None and (number := self.count(value, name)):
                return number
        return 0

    @property
    def doubt(self) -> str:
        """The token classes with impossible counts, in the format of `Usage.doubt`."""
        return "+".join(sorted(self.doubts))


def openai_usage(value: object, *, tier: str = "", fees: Fees = ()) -> Usage | None:
    """Read an OpenAI usage object; None if it contains no counts. `tier`, `fees`: values that the backend reported
    outside of this object.

    Impossible counts are named in `Usage.doubt`. Of two contradictory counts, the one with the higher cost is used.
    """
    if type(value) is not dict:
        return None
    names = _CHAT if "prompt_tokens" in value else _RESPONSES
    prompt, completion, total, read, wrote = map(value.get, names)
    if (
        type(prompt) is int
        and type(completion) is int
        and prompt > 0 <= completion
        and total == prompt + completion < ABSURD_TOKENS
    ):
        if len(value) == 3:
            return Usage(prompt, output_tokens=completion, service_tier=tier, fees=fees)
        cached, thought = _only(read, "cached_tokens"), _only(wrote, "reasoning_tokens")
        if cached <= prompt and thought <= completion and value.keys() <= set(names):
            output = completion - thought
            return Usage(
                prompt - cached, cached, output_tokens=output, reasoning_tokens=thought, service_tier=tier, fees=fees
            )
    return _Reading(value).usage(tier, fees)


def _only(details: object, name: str) -> int:
    """The count `name` in `details`; 0 if there is none. Impossibly large if anything else must be read there."""
    if details is None:
        return 0
    if type(details) is not dict or type(count := details.get(name, 0)) is not int or count < 0:
        return ABSURD_TOKENS
    others = [key for key, value in details.items() if value is not None and (type(value) is not int or value)]
    return count if not others or others == [name] else ABSURD_TOKENS


def any_usage(value: object, *, tier: str = "", fees: Fees = ()) -> Usage | None:
    """Read a usage object in OpenAI's format, or in the format of Responses or of Cohere (`billed_units`). A total
    without further counts counts as input tokens. None if the object contains no counts.

    `tier`, `fees`: values that the backend reported outside of this object.
    """
    if type(value) is not dict:
        return None
    if type(units := value.get("billed_units")) is dict:
        value = units
    elif not any(key in value for key in (*_PROMPT, *_COMPLETION)):
        value = {"prompt_tokens": value.get("total_tokens")}
    return openai_usage(value, tier=tier, fees=fees)


def usage_with(usage: Usage | None, tier: str, fees: Fees = ()) -> Usage | None:
    """Return `usage`. If `usage` is None, return a usage without tokens, with this `tier` and these `fees`. None if
    `tier` and `fees` are unknown too."""
    if usage is not None or not (tier or fees):
        return usage
    return Usage(service_tier=tier, fees=fees)


def later(reported: Usage | None, before: Usage | None) -> Usage | None:
    """Choose between two reports of one answer's usage: `before` and the later one, `reported`.

    If there is a later report, it is used. Exception: if it is doubtful and smaller than the earlier report, the
    earlier report is used.
    """
    if reported is None or before is None:
        return reported or before
    odd = reported.doubt or not reported.all_input
    return before if odd and reported.total < before.total else reported


def counted(usage: Usage | None, estimated_input: int) -> Usage:
    """Return `usage` if it has input tokens. Otherwise, return an estimate with `estimated_input` input tokens."""
    if usage is not None and usage.all_input:
        return usage
    doubt = usage.doubted("input_tokens") if usage is not None else ""
    return Usage(estimated_input, estimated=True, doubt=doubt)


def shown(usage: Usage | None) -> Usage | None:
    """The usage to show to the client; None if `usage` has no input tokens."""
    return usage if usage is not None and usage.all_input else None


def _billed(report: _Object) -> int | None:
    """The cost that a usage object states, in pico-dollars. None if it states no cost, or the cost 0, or an impossible
    cost.

    A reseller may call the vendor with the account's own key. Then the vendor's cost is in a separate field, and is
    added.
    """
    if "cost" not in report:
        return None
    details = report.get("cost_details")
    own_key = report.get("is_byok") is True and type(details) is dict
    amounts = [report["cost"], *([details.get("upstream_inference_cost")] if own_key and details else [])]
    if not all(type(each) in (int, float) and 0 <= each < _ABSURD_USD for each in amounts):
        return None
    return round(sum(Decimal(str(each)) for each in amounts) * PICO_PER_USD) or None


class _Reading:
    """Reads one usage object. Cached tokens are part of the prompt, and reasoning tokens are part of the
    completion. A total that leaves out such a part is corrected.
    """

    def __init__(self, report: _Object) -> None:
        counts = self._counts = Counts()
        self._report, self._read, self._wrote = report, _group(report, _READ), _group(report, _WROTE)
        self._counted = any(report.get(key) is not None for key in (*_PROMPT, *_COMPLETION, "total_tokens"))
        self._prompt = counts.first(report, _PROMPT, "input_tokens")
        self._completion = counts.first(report, _COMPLETION, "output_tokens")
        self._total = counts.count(report.get("total_tokens"), "total_tokens")
        self._knows_total = report.get("total_tokens") is not None and "total_tokens" not in counts.doubts
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
        written = written or self._counts.count(self._report.get(_WRITTEN), "cache_write_tokens")
        fresh, audio_input, image_input = self._seen(fresh)
        if written <= fresh:
            fresh -= written
        reasoning, audio, images, output = self._output(fresh + cached + written + audio_input + image_input)
        return Usage(
            input_tokens=fresh,
            cached_tokens=cached,
            cache_write_5m_tokens=written,
            output_tokens=output,
            reasoning_tokens=reasoning,
            audio_tokens=audio,
            audio_input_tokens=audio_input,
            image_input_tokens=image_input,
            image_tokens=images,
            service_tier=tier,
            fees=fees,
            doubt=self._counts.doubt,
            billed_pico=_billed(self._report),
        )

    def _cache(self) -> tuple[int, int]:
        """Split the tokens of the prompt into (cached, uncached). An impossible number of cached tokens counts as
        0.
        """
        counts, doubts = self._counts, self._counts.doubts
        cached = counts.count(self._read.get("cached_tokens"), "cached_tokens")
        separate = counts.first(self._report, _CACHED, "cached_tokens")
        if cached and separate and cached != separate:
            doubts.add("cached_tokens")
        cached = min(cached, separate) if cached and separate else cached or separate
        missed = counts.count(self._report.get(_MISSED), "cached_tokens")
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
        """Split the uncached input into (text, audio, images). `fresh`: number of uncached tokens."""
        counts, within = self._counts, self._read.get("cached_tokens_details")
        within = within if type(within) is dict else {}
        audio_input, image_input = (
            max(0, counts.count(self._read.get(name), name) - counts.count(within.get(name), "cached_tokens"))
            for name in ("audio_tokens", "image_tokens")
        )
        if audio_input + image_input > fresh:
            if fresh < self._prompt:  # some tokens were cached, but the backend does not report how many of each kind
                return fresh, 0, 0
            counts.doubts.add("audio_tokens" if audio_input else "image_tokens")
            audio_input = min(audio_input, fresh)
            image_input = fresh - audio_input
        return fresh - audio_input - image_input, audio_input, image_input

    def _output(self, all_input: int) -> tuple[int, int, int, int]:
        """Split the output into its kinds. Returns the numbers of reasoning, audio, image and text tokens."""
        counts, doubts = self._counts, self._counts.doubts
        audio = counts.count(self._wrote.get("audio_tokens"), "audio_tokens")
        images = counts.count(self._wrote.get("image_tokens"), "image_tokens")
        reasoning = counts.first(self._wrote, _REASONING, "reasoning_tokens")
        reasoning = reasoning or counts.first(self._report, _REASONING, "reasoning_tokens")
        if audio + images > self._completion:
            doubts.add("audio_tokens" if audio else "image_tokens")
            audio = min(audio, self._completion)
            images = self._completion - audio
        text = self._completion - audio - images
        more = self._total - all_input - self._completion if self._knows_total else 0
        if more < 0 and self._total == self._prompt + self._completion:
            more = 0
        if more < 0:
            doubts.add("total_tokens")
        if reasoning > text or more == reasoning:  # reported outside of the completion, as by xAI
            if reasoning > text and more != reasoning:
                doubts.add("reasoning_tokens")
            more = max(0, more - reasoning)
        else:
            text -= reasoning
        if more > 0:  # thoughts that are only in the total, as Google reports them
            if reasoning:
                doubts.add("total_tokens")
            reasoning += more
        return reasoning, audio, images, text


def _group(report: _Object, names: Iterable[str]) -> _Object:
    """The first object in `report` under one of `names`; empty if there is no such object."""
    return next((group for name in names if type(group := report.get(name)) is dict), {})
