"""Registers this package as a client dialect."""

from __future__ import annotations

from gateway.dialects.client import Client
from gateway.dialects.openai_embeddings import dialect
from gateway.dialects.openai_embeddings.native import EmbeddingsToEmbeddings

CLIENT = Client(dialect, {"/embeddings": dialect, "/v1/embeddings": dialect}, native=EmbeddingsToEmbeddings())
