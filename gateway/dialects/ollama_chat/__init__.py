"""The client dialect of Ollama's `/api/chat`."""
