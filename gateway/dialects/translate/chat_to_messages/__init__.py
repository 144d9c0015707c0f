"""OpenAI chat clients with backends of Anthropic's messages API."""
