"""The client dialect of Amazon Bedrock's `Converse` and `ConverseStream`."""
