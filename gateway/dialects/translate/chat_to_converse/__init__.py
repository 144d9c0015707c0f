"""Translates between an OpenAI chat client and a Bedrock Converse backend."""
