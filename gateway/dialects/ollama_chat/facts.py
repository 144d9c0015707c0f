"""Facts about Ollama's chat that other packages need. Requests of this dialect are stored in the format of chat."""

from gateway.domain.dialect import Dialect

FACTS = Dialect("ollama_chat", text_field="messages", image_part="image_url", stream_type="application/x-ndjson")
