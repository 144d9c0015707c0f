"""Ollama's `/api/chat`, for clients."""
