"""How many input tokens a request's documents, images and recordings can cost."""
