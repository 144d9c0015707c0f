"""How other packages treat Anthropic's messages."""

from gateway.domain.dialect import Dialect

FACTS = Dialect(
    "anthropic_messages",
    text_field="messages",
    image_part="image",
    system_field="system",
    repeatable=True,
    anthropic_limits=True,
)
