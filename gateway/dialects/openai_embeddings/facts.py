"""Facts about OpenAI's embeddings that other packages need."""

from gateway.domain.dialect import Dialect

FACTS = Dialect("openai_embeddings", operation="embeddings", limits_output=False)
