"""OpenAI chat clients over backends that speak Anthropic's messages."""
