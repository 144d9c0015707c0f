"""Anthropic messages clients with OpenAI chat backends."""
