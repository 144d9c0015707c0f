"""Facts about Gemini's generateContent that other packages need. Requests of this dialect are stored in the format of
chat."""

from gateway.domain.dialect import Dialect

FACTS = Dialect(
    "gemini_generate",
    operation="generate_content",
    text_field="messages",
    image_part="image_url",
    key_headers=(b"x-goog-api-key",),
)
