"""Stored responses of OpenAI's Responses API."""
