"""Gemini clients, over chat."""
