"""The batch APIs of OpenAI and Anthropic. A batch has many requests in one file or body; they are answered through the
pipeline at low priority."""
