"""Facts about OpenAI's legacy completions that other packages need."""

from gateway.domain.dialect import Dialect

FACTS = Dialect("openai_completions", operation="text_completion")
