"""How other packages treat OpenAI's chat completions."""

from gateway.domain.dialect import Dialect

FACTS = Dialect("openai_chat", text_field="messages", image_part="image_url", repeatable=True)
