from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cache.keys import Keys, Question, scope
from gateway.context.strategies import experiments
from gateway.domain.request import CompletionRequest, Controls, DialectName
from gateway.domain.tenant import Tenant
from tests.cache.conftest import request, tenant
from tests.support.requests import request_in, responses_request


def digest(asked: CompletionRequest, who: Tenant, revision: str) -> bytes:
    return Keys(revision).digest(asked, who)


def question(asked: CompletionRequest, who: Tenant, revision: str, embedder: str) -> Question | None:
    return Keys(revision).question(asked, who, embedder)


SCOPES = ("key", "team", "organisation", "public")
tenants = st.builds(
    lambda team, key, organisation, scope: tenant(
        team, key, epoch=f"{team}-{scope}", organisation=organisation, cache={"scope": scope}
    ),
    st.sampled_from(["a", "b", "a.b"]),
    st.sampled_from(["k1", "k2"]),
    st.sampled_from(["acme", "acme/b", "other"]),
    st.sampled_from(SCOPES),
)


def may_share(one: Tenant, two: Tenant) -> bool:
    """What the documentation promises, said without hashes."""
    if one.policy.cache.scope != two.policy.cache.scope:
        return False
    same = {
        "key": (one.organisation, one.team, one.key.id) == (two.organisation, two.team, two.key.id),
        "team": (one.organisation, one.team) == (two.organisation, two.team),
        "organisation": one.organisation == two.organisation,
        "public": True,
    }
    return same[one.policy.cache.scope]


@given(tenants, tenants)
def test_answers_are_shared_within_the_scope_and_never_beyond(one: Tenant, two: Tenant) -> None:
    keys = [digest(request(), who, "") for who in (one, two)]
    partitions = [question(request(), who, "", "embedder") for who in (one, two)]
    assert (keys[0] == keys[1]) is may_share(one, two)
    assert (partitions[0] == partitions[1]) is may_share(one, two)


def test_no_two_scopes_have_one_name() -> None:
    names = [
        scope(tenant(team, key, organisation=organisation, cache={"scope": kind}))
        for team, key, organisation, kind in itertools.product("ab", ["k1", "k2"], ["x", "y"], SCOPES)
    ]
    assert len(set(names)) == 8 + 4 + 2 + 1


def test_teams_of_one_organisation_share_only_under_the_same_rules() -> None:
    shared: dict[str, Any] = {"cache": {"scope": "organisation"}}
    plain, same, other = (
        tenant("a", epoch="1", **shared),
        tenant("b", epoch="2", budget={"limit_usd": 5}, **shared),
        tenant("c", epoch="3", models={"auto": ["small"]}, **shared),
    )
    assert digest(request(), plain, "") == digest(request(), same, "")
    assert digest(request(), plain, "") != digest(request(), other, "")


@pytest.mark.parametrize(
    "fields",
    [{"stream": True}, {"user": "u-1"}, {"stream": True, "stream_options": {"include_usage": True}}, {"seed": None}],
)
def test_what_has_no_influence_on_the_answer_is_not_in_the_key(fields: dict[str, Any]) -> None:
    assert digest(request(), tenant(), "") == digest(request(**fields), tenant(), "")


@pytest.mark.parametrize("controls", [Controls(tier="large"), Controls(untouched=True), Controls(cache_scope="a")])
def test_controls_that_change_the_answer_are_in_the_key(controls: Controls) -> None:
    assert digest(request(), tenant(), "") != digest(request(controls=controls), tenant(), "")
    assert question(request(), tenant(), "", "e") != question(request(controls=controls), tenant(), "", "e")


def test_the_embedder_is_part_of_the_partition() -> None:
    one, two = (question(request(), tenant(), "", embedder) for embedder in ("one", "two"))
    assert one
    assert two
    assert one.partition != two.partition
    assert one.text == two.text


def test_a_text_part_is_a_text_and_its_other_fields_stay_outside() -> None:
    part = {"type": "text", "text": "What is 1 + 1?"}
    marked = {**part, "cache_control": {"type": "x"}}
    one, two = (question(request([{"role": "user", "content": [it]}]), tenant(), "", "e") for it in (part, marked))
    assert one
    assert two
    assert one.text == two.text
    assert one.partition != two.partition


@pytest.mark.parametrize(
    "asked",
    [
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "on"}],
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "See"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
                ],
            }
        ],
        "   ",
        "x" * 6001,
    ],
)
def test_what_is_not_one_plain_question_is_for_the_exact_level_alone(asked: Any) -> None:
    assert question(request(asked), tenant(), "", "e") is None


def test_a_responses_request_is_a_question_too() -> None:
    def question_of(given: Any, **fields: Any) -> Question | None:
        return question(responses_request(given, **{"temperature": 0, **fields}), tenant(), "", "e")

    def text_input(text: str) -> list[Any]:
        return [{"role": "user", "content": [{"type": "input_text", "text": text}]}]

    one, two = question_of("How high?"), question_of("What height?")
    assert one is not None
    assert two is not None
    assert (one.text, one.partition) == ("How high?", two.partition)
    assert one != question_of("How high?", instructions="Be brief.")
    first, second = question_of(text_input("How high?")), question_of(text_input("What height?"))
    assert first is not None
    assert second is not None
    assert first.partition == second.partition
    assert question_of([*text_input("How high?"), {"role": "assistant", "content": "8 m"}]) is None


def test_what_is_remembered_of_a_tenant_never_serves_another_one() -> None:
    keys = Keys("")
    those = [
        tenant(),
        tenant(),
        tenant(epoch="e2"),
        tenant("other"),
        tenant(organisation="acme"),
        tenant(cache={"scope": "key"}),
        tenant(key="k2"),
        tenant(),
    ]
    for who in those:  # most of them have one key's id
        assert keys.digest(request(), who) == Keys("").digest(request(), who)
        assert keys.question(request(), who, "e") == Keys("").question(request(), who, "e")


def test_what_is_remembered_of_a_tenant_leaves_out_what_a_request_brings_along() -> None:
    keys, who = Keys(""), tenant()
    plain, asked = request(), request()
    asked.headers = {b"x-beta": b"tools-2"}
    for _ in range(2):
        assert keys.digest(plain, who) != keys.digest(request(controls=Controls(tier="large")), who)
        assert keys.digest(plain, who) != keys.digest(asked, who)


def test_revisions_do_not_share() -> None:
    assert digest(request(), tenant(), "") != digest(request(), tenant(), "other backends")


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic_messages", "openai_responses"])
def test_variants_of_an_experiment_share_no_answer_at_any_level(dialect: DialectName) -> None:
    """The text of a variant is part of both keys, so an answer under one system prompt is no hit under another."""
    plain, who = request_in(dialect, "Where is it?", model="m", temperature=0), tenant()
    asked = [plain, *(experiments.varied(plain, text) for text in ("Be brief.", "Explain."))]
    assert len({digest(each, who, "r") for each in asked}) == 3
    found = [question(each, who, "r", "e") for each in asked]
    assert all(each is not None for each in found)
    assert len({each.partition for each in found if each is not None}) == 3
