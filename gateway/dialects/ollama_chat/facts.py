"""Facts about Ollama's chat that other packages need. Its requests are stored as chat requests."""

from gateway.domain.dialect import Dialect

FACTS = Dialect("ollama_chat", text_field="messages", image_part="image_url", stream_type="application/x-ndjson")
