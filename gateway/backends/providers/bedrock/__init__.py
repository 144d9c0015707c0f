"""Amazon Bedrock: signatures, credentials, event streams and addresses."""
