"""OpenAI Responses clients with OpenAI chat backends."""
