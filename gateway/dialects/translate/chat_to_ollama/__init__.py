"""Translates between an OpenAI chat client and Ollama's own API."""
