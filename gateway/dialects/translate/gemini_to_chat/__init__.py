"""Translates between a Gemini client and OpenAI's chat format."""
