"""Facts about OpenAI chat completions that other packages need."""

from gateway.domain.dialect import Dialect

FACTS = Dialect("openai_chat", text_field="messages", image_part="image_url", repeatable=True)
