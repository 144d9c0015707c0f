"""What providers charge for a prompt, by the rules of their prompt caches: values in, values out."""
