"""Facts about OpenAI Responses that other packages need."""

from gateway.domain.dialect import Dialect

FACTS = Dialect(
    "openai_responses", text_field="input", image_part="input_image", answers_have_ids=True, numbers_events=True
)
