"""Endpoints for which the gateway reads only the model and the usage: audio, images, moderations, rerank."""
