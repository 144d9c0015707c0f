"""OpenAI chat client, Gemini backend."""
