"""OpenAI chat clients with backends of OpenAI's Responses API."""
