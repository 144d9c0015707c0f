"""OpenAI chat client, Bedrock Converse backend."""
