"""The Responses API on a WebSocket."""
