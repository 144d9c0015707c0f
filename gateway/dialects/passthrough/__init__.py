"""Endpoints of which only the model and the usage are read: audio, images, moderations, rerank."""
