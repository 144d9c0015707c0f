"""Input tokens of a request's documents, images and recordings."""
