"""How other packages treat OpenAI's legacy completions."""

from gateway.domain.dialect import Dialect

FACTS = Dialect("openai_completions", operation="text_completion")
