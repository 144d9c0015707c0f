"""Facts about Gemini's generateContent that other packages need. Its requests are stored in chat's format."""

from gateway.domain.dialect import Dialect

FACTS = Dialect(
    "gemini_generate",
    operation="generate_content",
    text_field="messages",
    image_part="image_url",
    key_headers=(b"x-goog-api-key",),
)
