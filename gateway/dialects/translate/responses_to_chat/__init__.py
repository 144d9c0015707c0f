"""Clients of OpenAI's Responses over backends that speak OpenAI chat."""
