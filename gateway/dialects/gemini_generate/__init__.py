"""Gemini's `generateContent` and `streamGenerateContent`, for clients."""
