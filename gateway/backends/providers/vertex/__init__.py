"""Vertex AI: Google's tokens and addresses."""
