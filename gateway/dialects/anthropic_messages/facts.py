"""Facts about Anthropic messages that other packages need."""

from gateway.domain.dialect import Dialect

FACTS = Dialect(
    "anthropic_messages",
    text_field="messages",
    image_part="image",
    system_field="system",
    repeatable=True,
    key_headers=(b"x-api-key",),
    anthropic_limits=True,
)
