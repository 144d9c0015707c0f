"""How other packages treat OpenAI's embeddings."""

from gateway.domain.dialect import Dialect

FACTS = Dialect("openai_embeddings", operation="embeddings", limits_output=False)
