"""OpenAI's legacy completions."""
