"""When a prompt is marked for Anthropic's prompt cache, where, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.context.estimate import estimate
from gateway.context.marks import CacheMarking
from gateway.dialects.anthropic_messages.dialect import parse
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.prompt_cache import CacheMarks
from gateway.domain.record import Attempt
from gateway.domain.request import Controls
from gateway.domain.routing.route import ContextPlan, Prefix
from gateway.domain.tenant import Key, Tenant

TOOLS = [{"name": "read", "input_schema": {"type": "object"}}]


def anthropic(base_url: str = "https://api.anthropic.com/v1", **more: Any) -> Backend:
    return Backend(name="claude", kind="anthropic", base_url=base_url, model="claude-sonnet-4-5", **more)


def tenant(mode: str = "auto", team: str = "search") -> Tenant:
    return Tenant(Key("k", team), Policy(team=team, context=ContextPolicy.model_validate({"prompt_cache": mode})))


@dataclass
class Session:
    """One conversation whose requests add one block each, with a clock of its own. The block stands for the answer of
    the model and for what follows it."""

    now: float = 1000.0
    marking: CacheMarking = field(init=False)
    lengths: tuple[int, ...] = ()
    blocks: int = 0
    kept: int = 0
    sent: int = 0
    """Tokens of the latest request."""
    newest: str = "hello"
    """Text of the newest block."""
    pauses: bool = True
    """Whether another session of the team had a pause of ten minutes."""

    def __post_init__(self) -> None:
        self.marking = CacheMarking(lambda: self.now)
        if self.pauses:
            for _ in range(2):
                self.answered(self.plan(30_000, name=b"other"), b"other")
                self.now += 600.0
            self.lengths, self.blocks, self.kept, self.sent = (), 0, 0, 0

    def plan(
        self,
        tokens: int,
        *,
        name: bytes = b"s",
        tools: bool = True,
        who: Tenant | None = None,
        backend: Backend | None = None,
        body: dict[str, Any] | None = None,
        untouched: bool = False,
        cut: frozenset[int] = frozenset(),
        anchor: int = 0,
    ) -> CacheMarks | None:
        self.sent = tokens
        messages = [{"role": "user", "content": "hello"}] * self.blocks + [{"role": "user", "content": self.newest}]
        sent = {"model": "m", "max_tokens": 9, "messages": messages, **(body or {})}
        if tools:
            sent["tools"] = TOOLS
        request = parse(orjson.dumps(sent), "req_1", Controls(untouched=untouched), {})
        prefix = Prefix(name, self.lengths)
        plan = ContextPlan(tokens, tokens, drop=cut, anchor=anchor)
        return self.marking.plan(request, who or tenant(), backend or anthropic(), prefix, plan)

    def answered(
        self, marks: CacheMarks | None, name: bytes = b"s", *, kept: bool = True, team: str = "search"
    ) -> None:
        assert marks is not None
        self.blocks += 1
        marks.blocks = self.blocks
        usage = self.usage(marks) if kept and marks.newest else Usage(5)
        attempt = Attempt("a", 1, anthropic(), 0.0, outcome="ok", usage=usage, marks=marks)
        self.marking.learn(attempt, team, Prefix(name, self.lengths))
        self.lengths = (*self.lengths, 7)

    def usage(self, marks: CacheMarks) -> Usage:
        """All that was there before is read, unless the marks begin anew; the rest is written. A mark of an hour that
        is not at the end of an earlier request costs the tokens of the newest block."""
        read, self.kept = min(self.kept, self.sent) if marks.earlier else 0, self.sent
        written = self.sent - read
        long = min(written, estimate(self.newest)) if (self.blocks, "1h") in marks.earlier else 0
        return Usage(5, read, written - long, long)

    def begin(self, tokens: int, requests: int = 9) -> None:
        for _ in range(requests):
            self.step(tokens)

    def step(self, tokens: int, after_s: float = 10.0, anchor: int = 0) -> CacheMarks:
        self.now += after_s
        marks = self.plan(tokens, anchor=anchor)
        self.answered(marks)
        assert marks is not None
        return marks


def test_an_agents_first_request_is_marked_for_five_minutes() -> None:
    marks = Session().plan(40_000)
    assert marks is not None
    assert (marks.newest, marks.earlier, marks.fixed) == ("5m", (), True)


def test_the_beginning_of_an_answer_is_kept_for_an_hour_with_all_before_it() -> None:
    session = Session()
    session.begin(40_000)
    marks = session.step(45_000)
    assert (marks.newest, marks.earlier) == ("5m", ((10, "1h"),))
    assert session.marking.cached(b"s", "claude") == (45_005, 40_000 + estimate("hello"))
    assert session.marking.stats()["cache_marked_1h"] == 1


def test_a_session_of_fewer_than_ten_requests_pays_for_no_hour() -> None:
    session = Session()
    lifetimes = {lifetime for _ in range(9) for _, lifetime in session.step(40_000).earlier}
    assert lifetimes == {"5m"}
    assert session.step(40_000).earlier == ((10, "1h"),)


def test_a_team_pays_for_no_hour_before_its_first_pause() -> None:
    session = Session(pauses=False)
    session.begin(40_000, 30)
    assert session.marking.stats()["cache_marked_1h"] == 0
    session.step(40_000, after_s=400.0)
    session.step(40_000)
    assert session.step(40_000).earlier[0][1] == "1h"


def test_another_teams_pause_makes_no_team_pay() -> None:
    session = Session(pauses=False)
    for _ in range(2):
        marks = session.plan(30_000, name=b"other", who=tenant(team="ads"))
        session.answered(marks, b"other", team="ads")
        session.now += 600.0
    session.lengths, session.blocks, session.kept = (), 0, 0
    session.begin(40_000, 30)
    assert session.marking.stats()["cache_marked_1h"] == 0


def test_a_gap_of_two_minutes_announces_pauses() -> None:
    session = Session()
    session.begin(40_000, 3)
    assert session.step(40_000, after_s=119.0).earlier == ((3, "5m"),)
    assert session.step(40_000, after_s=121.0).earlier == ((5, "1h"),)


def test_a_worker_that_has_seen_few_requests_counts_the_answers_in_the_history() -> None:
    session = Session()
    messages = [{"role": role, "content": "hello"} for _ in range(9) for role in ("user", "assistant")]
    session.answered(session.plan(40_000, body={"messages": [*messages[:-2], messages[0]]}))
    following = session.plan(40_100, body={"messages": [*messages, messages[0]]})
    assert following is not None
    assert following.earlier == ((2, "1h"),)
    short = session.plan(40_100, body={"messages": [*messages[2:], *[messages[0]] * 3]})
    assert short is not None
    assert short.earlier == ((1, "5m"),)


def test_hours_marks_cost_a_small_share_of_a_session_until_they_bridge_a_pause() -> None:
    session = Session(newest="word " * 250)
    session.begin(40_000)
    lifetimes = [session.step(40_000 + 1000 * number).earlier[0] for number in range(30)]
    bought = [place for place, lifetime in lifetimes if lifetime == "1h"]
    assert 1 <= len(set(bought)) <= 5
    assert session.step(85_000, after_s=900.0).earlier[0] == (bought[-1], "1h")
    assert {session.step(110_000 + 20_000 * number).earlier[0][0] for number in range(2)} == {41, 42}


def test_a_long_answer_waits_for_a_short_one_that_makes_all_of_it_last() -> None:
    session = Session()
    session.begin(40_000)
    session.newest = "word " * 2000
    marks = session.step(60_000)
    assert (marks.newest, marks.earlier) == ("5m", ((9, "5m"),))
    session.newest = "hello"
    assert session.step(60_100).earlier == ((11, "1h"),)
    marks = session.step(64_000)
    assert marks.earlier == ((11, "1h"), (11, "5m"))


def test_after_a_pause_only_what_lasts_an_hour_counts_as_kept() -> None:
    session = Session()
    session.begin(40_000)
    session.step(40_100)
    session.newest = "word " * 2000
    session.step(60_000)
    marks = session.step(60_100, after_s=900.0)
    assert (marks.newest, marks.earlier) == ("5m", ((10, "1h"), (10, "5m")))


def test_a_prompt_that_nobody_keeps_any_more_is_marked_as_a_first_one() -> None:
    session = Session()
    session.step(40_000)
    assert session.step(40_100, after_s=301.0).earlier == ()
    session.step(40_200)
    assert session.step(40_300, after_s=3601.0).earlier == ()


def test_a_history_that_the_client_rewrote_begins_anew() -> None:
    session = Session()
    session.step(40_000)
    session.step(40_100)
    session.lengths = (8, 7)
    assert session.step(40_200).earlier == ()


def test_the_place_where_the_next_cut_begins_stays_in_the_cache() -> None:
    session = Session()
    session.step(40_000, anchor=1)
    session.step(60_000, anchor=1)
    assert session.step(80_000, anchor=1).earlier == ((2, "5m"), (1, "5m"))
    cut = session.plan(60_000, cut=frozenset({1}), anchor=3)
    assert cut is not None
    assert (cut.newest, cut.earlier) == ("5m", ((1, "5m"), (3, "5m")))
    session.answered(cut)
    following = session.plan(80_000, cut=frozenset({1}), anchor=3)
    assert following is not None
    assert following.earlier == ((4, "5m"), (3, "5m"))


def test_the_place_where_the_next_cut_begins_is_kept_again_after_the_cache_has_expired() -> None:
    session = Session()
    for _ in range(3):
        session.step(40_000, anchor=1)
    assert session.step(40_000, after_s=400.0, anchor=1).earlier == ((1, "5m"),)


def test_a_place_that_the_cache_has_forgotten_is_not_taken_for_the_one_before_the_next_cut() -> None:
    session = Session()
    for _ in range(3):
        session.step(40_000, anchor=1)
    session.step(40_000, after_s=400.0, anchor=1)  # caches the prompt anew, up to the ends of requests 1 and 4 only
    for _ in range(35):
        assert session.step(40_000, anchor=2).earlier[-1][0] == 1
    cut = session.plan(30_000, cut=frozenset({2}), anchor=35)
    assert cut is not None
    assert cut.earlier[0] == (1, "5m")


def test_a_cut_before_the_kept_place_is_written_from_the_system_prompt_on() -> None:
    session = Session()
    for _ in range(3):
        session.step(40_000, anchor=1)
    session.answered(session.plan(30_000, cut=frozenset({2}), anchor=3))
    cut = session.plan(20_000, cut=frozenset({1, 2}), anchor=4)
    assert cut is not None
    assert (cut.earlier, cut.fixed) == (((4, "5m"),), True)


def test_a_new_cut_begins_anew_and_the_same_cut_goes_on() -> None:
    session = Session()
    session.step(40_000)
    session.now += 10
    marks = session.plan(30_000, cut=frozenset({0}))
    assert marks is not None
    assert (marks.newest, marks.earlier) == ("5m", ())
    session.answered(marks)
    again = session.plan(30_100, cut=frozenset({0}))
    assert again is not None
    assert again.earlier == ((2, "5m"),)


def test_a_change_of_the_newest_message_is_no_new_cut() -> None:
    session = Session()
    session.step(40_000)
    marks = session.plan(40_100, cut=frozenset({1}))
    assert marks is not None
    assert [place for place, _ in marks.earlier] == [1]


def test_a_backend_that_kept_nothing_is_not_marked_beyond_five_minutes() -> None:
    session = Session()
    session.answered(session.plan(40_000), kept=False)
    marks = session.plan(40_100)
    assert marks is not None
    assert (marks.newest, marks.earlier) == ("5m", ())


def test_a_single_question_is_not_marked_until_the_teams_sessions_turn_out_to_go_on() -> None:
    session = Session()
    marks = session.plan(5000, tools=False)
    assert marks is not None
    assert not marks.changes
    for number in range(4):
        session.lengths, name = (), str(number).encode()
        for _ in range(2):
            session.now += 5
            session.answered(session.plan(5000, name=name, tools=False), name)
    marks = session.plan(5000, name=b"next", tools=False)
    assert marks is not None
    assert marks.newest == "5m"


def test_sessions_that_end_at_once_teach_that_marks_do_not_pay() -> None:
    session = Session()
    for number in range(60):
        name = str(number).encode()
        session.answered(session.plan(40_000, name=name), name)
        session.lengths = ()
        session.now += 400
    marks = session.plan(40_000, name=b"next")
    assert marks is not None
    assert not marks.changes
    other = session.plan(40_000, name=b"theirs", who=tenant(team="other"))
    assert other is not None
    assert other.newest == "5m"


def test_a_system_prompt_that_another_session_sent_lately_is_marked_alone() -> None:
    session = Session()
    system = {"system": "Sort the letter into one of these boxes. " * 300}
    for name, changes in ((b"1", False), (b"2", True)):
        marks = session.plan(5000, name=name, tools=False, body=system)
        assert marks is not None
        assert (marks.fixed, marks.newest) == (changes, None)
    session.now += 301
    marks = session.plan(5000, name=b"3", tools=False, body=system)
    assert marks is not None
    assert not marks.changes


def test_a_session_that_came_back_is_marked_whatever_others_do() -> None:
    session = Session()
    session.answered(session.plan(5000, tools=False))
    marks = session.plan(5100, tools=False)
    assert marks is not None
    assert marks.newest == "5m"


def test_nothing_is_marked_where_it_may_not_or_cannot_be_kept() -> None:
    session = Session()
    assert session.plan(40_000, untouched=True) is None
    assert session.plan(40_000, who=tenant("client")) is None
    assert session.plan(1000) is None
    assert session.plan(40_000, backend=anthropic("http://127.0.0.1:9/v1")) is None
    assert session.plan(40_000, backend=anthropic(prompt_cache=False)) is None
    assert session.plan(40_000, backend=anthropic("http://127.0.0.1:9/v1", prompt_cache=True)) is not None
    openai = Backend(name="gpt", kind="openai", base_url="https://api.openai.com/v1", model="gpt-5.6")
    assert session.plan(40_000, backend=openai) is None


def test_off_removes_the_clients_marks_and_leaves_a_body_without_them_alone() -> None:
    session = Session()
    assert session.plan(40_000, who=tenant("off")) is None
    text = [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]
    marks = session.plan(40_000, who=tenant("off"), body={"messages": [{"role": "user", "content": text}]})
    assert marks is not None
    assert marks.remove


def test_yaml_reads_a_bare_off_as_false() -> None:
    assert ContextPolicy.model_validate({"prompt_cache": False}).prompt_cache == "off"
