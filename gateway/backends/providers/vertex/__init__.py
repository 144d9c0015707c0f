"""Vertex AI: access tokens and addresses."""
