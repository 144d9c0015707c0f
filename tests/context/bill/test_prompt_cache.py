"""The biller against cases worked out by hand from the providers' published rules."""

from __future__ import annotations

import pytest

from gateway.context.bill.blocks import Block
from gateway.context.bill.prompt_cache import PromptCache
from gateway.domain.money.usage import Usage
from gateway.domain.prompt_cache import CacheRules, rules_of

ANTHROPIC = CacheRules("marks", 1024)


def blocks(*sizes: int, marks: dict[int, float] | None = None, path: str = "a") -> list[Block]:
    """Blocks of `sizes` tokens each; `path` tells one history from another, block by block."""
    found, tokens = [], 0
    for place, size in enumerate(sizes):
        tokens += size
        found.append(Block(f"{path[: place + 1]:a<{place + 1}}".encode(), tokens, (marks or {}).get(place, 0.0)))
    return found


def test_what_is_not_marked_is_plain_input() -> None:
    cache = PromptCache(ANTHROPIC)
    for at in (0.0, 1.0):
        assert cache.bill(blocks(5000, 100), at, 7) == Usage(5100, output_tokens=7)


def test_a_marked_prefix_is_written_once_and_then_read() -> None:
    cache = PromptCache(ANTHROPIC)
    assert cache.bill(blocks(5000, 100, marks={0: 300.0}), 0.0) == Usage(100, cache_write_5m_tokens=5000)
    assert cache.bill(blocks(5000, 200, marks={0: 300.0}), 60.0) == Usage(200, cached_tokens=5000)


def test_each_read_begins_the_lifetime_anew_and_its_end_makes_it_a_write_again() -> None:
    cache = PromptCache(ANTHROPIC)
    marked = blocks(5000, marks={0: 300.0})
    cache.bill(marked, 0.0)
    assert cache.bill(marked, 299.0).cached_tokens == 5000
    assert cache.bill(marked, 598.0).cached_tokens == 5000
    assert cache.bill(marked, 899.0).cache_write_5m_tokens == 5000


def test_an_hour_costs_its_own_class_and_lives_an_hour() -> None:
    cache = PromptCache(ANTHROPIC)
    marked = blocks(5000, marks={0: 3600.0})
    assert cache.bill(marked, 0.0).cache_write_1h_tokens == 5000
    assert cache.bill(marked, 3599.0).cached_tokens == 5000
    assert cache.bill(marked, 7300.0).cache_write_1h_tokens == 5000


def test_a_long_and_a_short_mark_split_the_write() -> None:
    usage = PromptCache(ANTHROPIC).bill(blocks(5000, 300, 70, marks={0: 3600.0, 1: 300.0}), 0.0)
    assert usage == Usage(70, cache_write_1h_tokens=5000, cache_write_5m_tokens=300)


def test_a_prefix_below_the_least_size_is_neither_written_nor_charged_for() -> None:
    cache = PromptCache(ANTHROPIC)
    assert cache.bill(blocks(1023, marks={0: 300.0}), 0.0) == Usage(1023)
    assert cache.bill(blocks(1024, marks={0: 300.0}), 0.0) == Usage(cache_write_5m_tokens=1024)


@pytest.mark.parametrize(("added", "read"), [(20, 5000), (21, 0)])
def test_an_entry_is_found_up_to_twenty_blocks_before_a_mark(added: int, read: int) -> None:
    cache = PromptCache(ANTHROPIC)
    cache.bill(blocks(5000, marks={0: 300.0}), 0.0)
    assert cache.bill(blocks(5000, *[10] * added, marks={added: 300.0}), 1.0).cached_tokens == read


def test_a_changed_block_ends_what_can_be_read() -> None:
    cache = PromptCache(ANTHROPIC)
    cache.bill(blocks(5000, 400, 30, marks={0: 300.0, 2: 300.0}, path="aaa"), 0.0)
    usage = cache.bill(blocks(5000, 400, 30, marks={0: 300.0, 2: 300.0}, path="aba"), 1.0)
    assert usage == Usage(cached_tokens=5000, cache_write_5m_tokens=430)


def test_marks_that_anthropic_refuses_are_refused() -> None:
    with pytest.raises(ValueError, match="5 marks"):
        PromptCache(ANTHROPIC).bill(blocks(*[2000] * 5, marks=dict.fromkeys(range(5), 300.0)), 0.0)
    with pytest.raises(ValueError, match="1-hour"):
        PromptCache(ANTHROPIC).bill(blocks(2000, 2000, marks={0: 300.0, 1: 3600.0}), 0.0)


def test_a_later_gpt_writes_up_to_its_newest_message_for_half_an_hour() -> None:
    cache = PromptCache(rules_of("gpt-5.6"))
    assert cache.bill(blocks(4000, 100), 0.0) == Usage(cache_write_5m_tokens=4100)
    assert cache.bill(blocks(4000, 100, 50), 1799.0) == Usage(cached_tokens=4100, cache_write_5m_tokens=50)
    assert cache.bill(blocks(4000, 100, 50), 4000.0) == Usage(cache_write_5m_tokens=4150)


def test_an_earlier_gpt_reads_in_steps_and_charges_no_write() -> None:
    cache = PromptCache(rules_of("gpt-4o"))
    assert cache.bill(blocks(4000, 100), 0.0) == Usage(4100)
    assert cache.bill(blocks(4000, 200, path="ab"), 1.0) == Usage(4200 - 3968, cached_tokens=3968)
    assert PromptCache(rules_of("gpt-4o")).bill(blocks(1000), 0.0) == Usage(1000)


@pytest.mark.parametrize(
    ("model", "rules"),
    [
        ("claude-opus-4-6", CacheRules("marks", 4096)),
        ("claude-sonnet-4-5-20250929", CacheRules("marks", 1024)),
        ("anthropic/claude-sonnet-5-5", CacheRules("marks", 512, read=0.05)),
        ("claude-3-5-haiku-latest", CacheRules("marks", 2048)),
        ("gpt-5.6-terra", CacheRules("newest", 1024, 1800.0)),
        ("gpt-5.4", CacheRules("common", 1024, read=0.25, write=1.0)),
        ("gpt-4o-mini", CacheRules("common", 1024, read=0.25, write=1.0)),
    ],
)
def test_rules_follow_the_models_name(model: str, rules: CacheRules) -> None:
    assert rules_of(model) == rules
