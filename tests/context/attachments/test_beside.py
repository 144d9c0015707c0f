"""Plans of requests with attachments: what their budget holds, what is expected, what is fitted into a window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.context.attachments.process import MeasuringProcess
from gateway.context.attachments.vendors import CLAUDE, GPT, IMAGE_TOKENS, OTHER
from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.domain.attachment import Measured
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import Attached
from gateway.errors import ContextTooLong
from tests.context.attachments.files import (
    base64,
    chat,
    data_url,
    document,
    docx,
    file_part,
    messages,
    pdf,
    responses,
    wav,
)
from tests.context.conftest import backend_of, tenant_of

WINDOW = 400_000
SOUND = {"type": "input_audio", "input_audio": {"data": base64(wav(10)), "format": "wav"}}
PICTURE = {"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}
BY_ID = {"type": "file", "file": {"file_id": "file-abc"}}


@pytest.fixture
def contexts(counter: Counter) -> Iterator[Contexts]:
    opened = Contexts(counter, MeasuringProcess(deadline_s=15.0))
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("request_", "attached"),
    [
        (chat(), Attached()),
        (chat(file_part(pdf(3))), Attached(document=3 * GPT.page)),
        (responses({"type": "input_file", "file_data": data_url(pdf(3))}), Attached(document=3 * GPT.page)),
        (messages(document(pdf(3))), Attached(document=3 * GPT.page)),
        (chat(SOUND), Attached(audio=101)),
        (chat(PICTURE, PICTURE), Attached(image=2 * GPT.image)),
        (chat(file_part(pdf(1)), SOUND, PICTURE), Attached(GPT.page, GPT.image, 101)),
        (chat(BY_ID), Attached(document=WINDOW)),
        (chat(BY_ID, BY_ID, SOUND), Attached(document=WINDOW - 101, audio=101)),
    ],
)
async def test_a_plan_counts_what_is_attached_by_kind(
    contexts: Contexts, request_: CompletionRequest, attached: Attached
) -> None:
    alone = await contexts.plan_for(chat(), tenant_of(), backend_of(WINDOW, model="gpt-4o"))
    plan = await contexts.plan_for(request_, tenant_of(), backend_of(WINDOW, model="gpt-4o"))
    assert plan.attached == attached
    assert plan.tokens_after == plan.tokens_before == alone.tokens_after + attached.total
    assert plan.expected_tokens == alone.tokens_after + plan.attached_usual <= plan.tokens_after
    assert not plan.touched


async def test_a_document_is_opened_once_for_all_backends(contexts: Contexts) -> None:
    request = chat(file_part(pdf(3)))
    first = await contexts.plan_for(request, tenant_of(), backend_of(WINDOW, model="gpt-4o"))
    (found,) = request.attachments or ()
    assert found.measured == Measured(pages=3)
    contexts.close()
    second = await contexts.plan_for(request, tenant_of(), backend_of(WINDOW, model="claude-opus-4-7"))
    assert (request.attachments or ())[0] is found
    assert (first.attached.document, second.attached.document) == (3 * GPT.page, 3 * CLAUDE.page)


async def test_without_a_known_window_the_family_s_usual_one_limits_what_cannot_be_opened(contexts: Contexts) -> None:
    plan = await contexts.plan_for(chat(BY_ID), tenant_of(), backend_of(None, model="unheard-of"))
    assert plan.attached == Attached(document=OTHER.window)


async def test_what_may_be_large_is_neither_refused_nor_trimmed_for(contexts: Contexts) -> None:
    for part in (
        BY_ID,
        file_part(b"%PDF-1.7 damaged" * 50_000),
        {"type": "video_url", "video_url": {"url": "https://a"}},
    ):
        plan = await contexts.plan_for(chat(part), tenant_of(), backend_of(8000, model="gpt-4o"))
        assert plan.attached.total == 8000
        assert not plan.touched


async def test_counted_pages_that_are_usually_too_many_are_left_to_the_provider(contexts: Contexts) -> None:
    request = chat(file_part(pdf(50)))
    plan = await contexts.plan_for(request, tenant_of(), backend_of(20_000, model="gpt-4o"))
    assert not plan.touched
    assert plan.expected_tokens > 20_000 * 0.9
    text = chat(file_part(pdf(50)), {"type": "text", "text": "one two three " * 20_000})
    with pytest.raises(ContextTooLong):
        await contexts.plan_for(text, tenant_of(), backend_of(20_000, model="gpt-4o"))


async def test_dropped_turns_take_what_is_attached_to_them_along(contexts: Contexts) -> None:
    earlier = {"role": "user", "content": [{"type": "text", "text": "first"}, file_part(pdf(4))]}
    said = {"role": "assistant", "content": "parcel " * 300}
    asked = {"role": "user", "content": [{"type": "text", "text": "now"}, SOUND]}
    request = chat(messages=[earlier, said, asked])
    plan = await contexts.plan_for(request, tenant_of(1000), backend_of(WINDOW, model="gpt-4o"))
    assert plan.drop == {0, 1}
    assert plan.attached == Attached(audio=101)
    assert plan.trimmed_tokens == pytest.approx(4 * GPT.page_usual + 300, rel=0.05)


async def test_an_estimate_opens_nothing_and_expects_what_is_usual(contexts: Contexts) -> None:
    alone = contexts.estimate(chat()).tokens
    request = chat(file_part(pdf(3)), PICTURE, file_part(docx("word " * 100), "a.docx", "application/zip"))
    assert alone + IMAGE_TOKENS + OTHER.page_usual <= contexts.estimate(request).tokens < 20_000
    assert request.attachments is None


async def test_a_parsed_attachment_costs_no_look_at_a_request_without_any(contexts: Contexts) -> None:
    request = chat()
    await contexts.plan_for(request, tenant_of(), backend_of(WINDOW))
    assert request.attachments is None
