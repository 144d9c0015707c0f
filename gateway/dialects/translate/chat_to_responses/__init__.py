"""OpenAI chat clients over backends that speak OpenAI's Responses."""
