"""Gemini client, with chat as the intermediate form."""
