"""Amazon Bedrock's `Converse` and `ConverseStream`, for clients."""
