"""The mixed day: how it is drawn, billed and judged. The run itself is tried by hand; here are its parts."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from gateway.backends.cascade.languages import language
from gateway.backends.cascade.weak_signals import repeats
from gateway.context.bill.sessions import Session
from gateway.domain.money.price import Price
from gateway.domain.policy import ModelRule
from gateway.policy.load import load_policies
from gateway.settings.gateway import Ceilings
from loadtests.day import ALL_ON, HEADLINE, JUDGED, MIXTURE, Outcome, dearer, missed, prices_of, sums_of
from loadtests.day_clients import Answered, agent_body, request_of
from loadtests.day_gateway import ALL, REFERENCE, policy_of, team_of, teams_of
from loadtests.day_plan import Asked, Day, Folders, Source, arrivals, drawn, usual_usd
from loadtests.day_provider import DayProvider, Speed, key_of, text_of
from loadtests.day_questions import Question, paraphrases, shared_tokens
from loadtests.day_table import Row, Spent, draw, hull_usd, pooled, quality_of, row_of, table


@pytest.fixture(scope="module")
def mixture() -> dict[str, Any]:
    return {**yaml.safe_load(MIXTURE.read_text(encoding="utf-8")), "usd": 2.0}


@pytest.fixture(scope="module")
def prices(mixture: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Price]:
    return prices_of(mixture, tmp_path_factory.mktemp("day"))


@pytest.fixture(scope="module")
def day(mixture: dict[str, Any], prices: dict[str, Price]) -> Day:
    return drawn(Source(Folders(), mixture, 0), mixture, prices, 7, Folders())


def test_the_shares_of_the_mixture_add_up_and_name_known_parts(mixture: dict[str, Any]) -> None:
    assert sum(mixture["shares"].values()) == pytest.approx(1)
    assert set(mixture["shares"]) == set(mixture["strata"])
    assert {*mixture["judged"], *mixture["scripted"], "agents"} == set(mixture["strata"])
    models = [model for pool in mixture["pools"].values() for model in pool]
    assert set(models) == set(mixture["prices"])


def test_each_stratum_has_its_share_of_the_dollars(day: Day, mixture: dict[str, Any], prices: dict[str, Price]) -> None:
    for stratum in ("knowledge", "deferrable", "spanish_portuguese"):
        usd = sum(
            usual_usd(one.question, mixture["pools"][one.question.pool][0], prices)
            for one in day.singles
            if one.stratum == stratum
        )
        assert usd == pytest.approx(2.0 * mixture["shares"][stratum], rel=0.05)


def test_a_share_of_the_requests_repeats_an_earlier_one(day: Day) -> None:
    assert 0.03 < sum(one.repeats for one in day.singles) / len(day.singles) < 0.15


def test_the_same_seed_draws_the_same_day_and_the_splits_share_no_question(
    day: Day, mixture: dict[str, Any], prices: dict[str, Price]
) -> None:
    again = drawn(Source(Folders(), mixture, 0), mixture, prices, 7, Folders())
    other = drawn(Source(Folders(), mixture, 1), mixture, prices, 7, Folders())
    assert [one.question.id for one in again.singles] == [one.question.id for one in day.singles]
    judged = [{one.question.id for one in each.singles if one.question.quality} for each in (day, other)]
    assert not judged[0] & judged[1]


def test_arrivals_follow_the_recorded_gaps(tmp_path: Path) -> None:
    (tmp_path / "azure_2023_conv.csv").write_text("t_ms,in_tokens,out_tokens\n0,1,1\n100,1,1\n1000,1,1\n")
    assert arrivals(tmp_path, 3, 10, random.Random(1)) == pytest.approx([0, 1, 10])


def test_every_question_is_found_by_what_the_provider_is_asked(day: Day, mixture: dict[str, Any]) -> None:
    asked = [one for one in day.singles if not one.question.texts]
    keys = {key_of({"messages": one.question.messages}) for one in asked}
    assert len(keys) == len({one.question.id for one in asked})


def test_the_provider_bills_a_documents_beginning_as_cached_the_second_time(prices: dict[str, Price]) -> None:
    document = {"role": "system", "content": "A long page about many things and their limits. " * 400}
    first, second = [
        Question(text, "general", (document, {"role": "user", "content": text})) for text in ("Limits?", "Steps?")
    ]
    provider = DayProvider({}, prices, {})
    bodies = [{"model": "gpt-4o-2024-08-06", "messages": list(one.messages)} for one in (first, second)]
    usages = [provider.bill(one, body) for one, body in zip((first, second), bodies, strict=True)]
    assert usages[0].cached_tokens == 0
    assert usages[1].cached_tokens > 3000


def test_a_session_reads_what_it_shares_with_others_in_its_first_request(prices: dict[str, Price]) -> None:
    model = "claude-opus-4-6"
    shared, own = ("Read the file before you change it. " * 1000, "Run the tests of what you have changed. " * 1000)
    said = ({"role": "user", "content": "Hi"},)
    usages = []
    for name, begin in (("a", shared), ("b", "")):
        one = Question(name, "agents", said, {model: 5}, session=name, at=0.0, system=own, shared=begin)
        usages.append(DayProvider({}, prices, {}).bill(one, agent_body(one, model)))
    assert usages[0].cached_tokens == pytest.approx(9000, rel=0.2)
    assert usages[1].cached_tokens == 0
    assert usages[0].cache_write_5m_tokens == pytest.approx(usages[1].cache_write_5m_tokens, rel=0.01)


def test_shared_tokens_are_those_that_the_provider_read_for_the_first_request() -> None:
    turn = {"t": 0.0, "append": [{"role": "user", "content": "Hi"}], "out": 5}
    read = {"usage": {"cache_read": 300}}
    found = [
        shared_tokens(Session("s", "", "anthropic", "m", hidden, {"turns": [first, {**turn, **read}]}))
        for hidden, first in ((1000, {**turn, **read}), (200, {**turn, **read}), (1000, turn))
    ]
    assert found == [300, 200, 0]


async def test_the_rest_of_a_stream_comes_after_the_time_in_which_it_is_written(prices: dict[str, Price]) -> None:
    model, said = "gpt-4o-2024-08-06", ({"role": "user", "content": "Hi"},)
    question = Question("q", "maths", said, {model: 40}, answers={model: "42"})
    body = {"model": model, "messages": list(said), "stream": True}
    provider = DayProvider({key_of(body): question}, prices, {model: Speed(0.05, 200)})
    await asyncio.to_thread(provider.bill, question, body)  # loads the tokenizer
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    sent = orjson.dumps(body)
    began = time.monotonic()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(sent), sent))
    await reader.readuntil(b"[[q|gpt-4o-2024-08-06]] ")
    first = time.monotonic() - began
    await reader.readuntil(b"The answer is: 42")
    last = time.monotonic() - began
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    assert first >= 0.05
    assert last - first >= 0.15


def test_an_answer_says_which_question_and_model_it_is_of() -> None:
    text = text_of(Question("q1", "maths", answers={"m": "42"}), "m", 50)
    assert text.startswith("[[q1|m]] ")
    assert text.endswith("The answer is: 42")


def test_no_answer_that_lacks_its_final_part_looks_weak_or_like_a_language() -> None:
    text = text_of(Question("q1", "maths"), "m", 4000)
    assert not repeats(text)
    assert language(text) is None
    assert len(text) // 3 == pytest.approx(4000, abs=20)


def test_first_calls_above_the_ceiling_are_told_from_those_after_another_call() -> None:
    rows = [
        ("knowledge", "", 10**12, False, 1),
        ("knowledge", "", 10**12, True, 2),
        ("knowledge", "shadow", 10**12, True, 1),
        ("other", "", None, True, 1),
    ]
    spent = sums_of(rows)
    assert spent["knowledge"] == Spent(3.0, 1.0, first_above=0, fallbacks_above=1)
    assert spent["other"] == Spent(first_above=1)
    usual = Outcome(REFERENCE, [], {team: Spent(5.0) for team in spent}, 0.0, 0.0)
    facts = dearer([usual, Outcome(ALL, [], spent, 0.0, 0.0)])
    assert (facts["first_above"], facts["fallbacks_above"]) == (1, 1)


def test_agents_name_their_model_and_mark_what_their_client_marks(day: Day, mixture: dict[str, Any]) -> None:
    asked = day.sessions[0][-1] if day.sessions else pytest.fail("no session was drawn")
    path, body, headers = request_of(asked, mixture["pools"]["agents"][0])
    assert (path, headers["user-agent"].startswith("claude-cli/")) == ("/v1/messages", True)
    assert body.count(b'"cache_control"') == 3


def test_policies_of_all_arms_are_valid_and_the_references_has_one_model(
    mixture: dict[str, Any], tmp_path: Path
) -> None:
    for number, (team, pool) in enumerate(teams_of(mixture).items()):
        for arm in (REFERENCE, ALL):
            values = policy_of(f"{team}-{arm.routing}", mixture["pools"][pool], arm, mixture["quality"])
            (tmp_path / f"{number}-{arm.routing}.yaml").write_bytes(orjson.dumps(values))
    found = load_policies([tmp_path], Ceilings()).policies
    rule = found["knowledge.maths-False"].rule("auto"), found["knowledge.maths-True"].rule("auto")
    assert rule[0] == mixture["pools"]["maths"][0]
    assert isinstance(rule[1], ModelRule)
    assert not found["knowledge.maths-False"].cache.enabled
    assert found["knowledge.maths-True"].cache.semantic.enabled


def answered(question: Question, of: str, model: str, cache: str = "miss", status: int = 200) -> Answered:
    return Answered(Asked(0, "knowledge", question), status, 10, cache, of, model)


def test_an_answer_of_another_question_is_a_wrong_hit_and_has_no_quality() -> None:
    question = Question("a", "maths", quality={"m": 1.0})
    meanings = {"a": "a", "b": "b"}
    right, wrong = answered(question, "a", "m", "exact"), answered(question, "b", "m", "semantic")
    assert [quality_of(one, meanings) for one in (right, wrong, answered(question, "", "", status=503))] == [1, 0, 0]
    row = row_of("arm", "knowledge", [right, wrong], Spent(1, 0.5), meanings)
    assert (row.hits, row.wrong_hits, row.quality, row.usd, row.learning_usd) == (2, 1, 0.5, 1, 0.5)


def test_the_hull_mixes_two_models(prices: dict[str, Price]) -> None:
    models = ["gpt-4o-2024-08-06", "gpt-4o-mini-2024-07-18"]
    said = ({"role": "user", "content": "Hi"},)
    questions = [Question(str(n), "maths", said, quality={models[0]: 1.0, models[1]: n % 2}) for n in range(4)]
    asked = [Asked(0, "knowledge", question) for question in questions]
    dearest, best = hull_usd(asked, models, prices, 1.0)
    cheapest, _ = hull_usd(asked, models, prices, 0.5)
    middle, _ = hull_usd(asked, models, prices, 0.75)
    assert best == 1.0
    assert middle == pytest.approx((dearest + cheapest) / 2)


def figures(arm: str, stratum: str, usd: float, quality: float | None, p50: float = 60) -> Row:
    return Row(arm, stratum, 10, usd, 0.0, quality, p50, 90, 0, 0, 0)


@pytest.mark.parametrize(
    ("usd", "quality", "p50", "misses"), [(0.6, 0.9, 60, 0), (0.61, 0.9, 60, 1), (0.6, 0.89, 61, 2)]
)
def test_the_bar_names_what_is_missed(usd: float, quality: float, p50: float, misses: int) -> None:
    rows = [
        *(figures("reference", name, 1.0, 0.9) for name in (JUDGED, HEADLINE)),
        *(figures(ALL_ON, name, usd, quality, p50) for name in (JUDGED, HEADLINE)),
    ]
    assert len(missed(rows)) == misses


def test_runs_are_summed_up_and_means_are_weighted() -> None:
    small, large = figures("all on", "knowledge", 1.0, 0.5, 10), figures("all on", "knowledge", 2.0, 1.0, 40)
    large.requests = 20
    (row,) = pooled([[small], [large]])
    assert (row.requests, row.usd, row.p50_ms, row.quality) == (30, 3.0, 30, pytest.approx(5 / 6))


def test_the_table_and_the_plot_have_every_arm(tmp_path: Path) -> None:
    rows = [figures(arm, name, 1.0, 0.9) for arm in ("reference", ALL_ON) for name in ("knowledge", JUDGED)]
    assert table(rows).count("\n") == 5
    pytest.importorskip("matplotlib")
    draw(rows, ["knowledge"], JUDGED, tmp_path / "day.svg")
    assert ALL_ON in (tmp_path / "day.svg").read_text()


def test_teams_tell_the_strata_apart(mixture: dict[str, Any]) -> None:
    assert teams_of(mixture)[team_of("deferrable", "exams")] == "exams"


def test_texts_that_labels_connect_mean_the_same_and_others_do_not(tmp_path: Path) -> None:
    rows = [("one", "two", 1), ("two", "three", 1), ("three", "four", 0)]
    lines = [{"id": f"r{n}", "a": a, "b": b, "label": label} for n, (a, b, label) in enumerate(rows)]
    (tmp_path / "dev_es.jsonl").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    (tmp_path / "dev_pt.jsonl").write_bytes(b"")
    found = {question.messages[0]["content"]: question.meaning for question in paraphrases(tmp_path)}
    assert found["one"] == found["two"] == found["three"] != found["four"]
