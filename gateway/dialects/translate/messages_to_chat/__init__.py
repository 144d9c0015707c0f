"""Clients of Anthropic's messages over backends that speak OpenAI chat."""
