"""Translates between an OpenAI chat client and a Gemini backend."""
