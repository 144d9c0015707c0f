"""Kind `litellm`: providers whose API the gateway does not implement. litellm runs in a process of its own."""
