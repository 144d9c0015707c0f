"""Batch APIs of OpenAI and Anthropic: many requests in one file or body, answered through the pipeline at low
priority."""
