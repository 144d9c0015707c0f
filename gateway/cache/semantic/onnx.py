"""A text encoder, which converts a text to a unit vector. It runs in one ONNX thread. Only this module imports
onnxruntime and tokenizers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from gateway.cache.packing import Vector
from gateway.errors import EmbedderUnavailable
from gateway.settings.environment import keep_onnxruntime_offline


def runtime() -> Any:
    """The onnxruntime module. It is configured to open no network connection."""
    keep_onnxruntime_offline()
    import onnxruntime  # not at the top, because its telemetry must be disabled first

    onnxruntime.disable_telemetry_events()
    return onnxruntime


class OnnxModel:
    """Implements `Model` of embedder.py with an ONNX model. The methods block and must be called from one thread."""

    def __init__(self, weights: Path, sha256: str, tokenizer: Path, max_tokens: int) -> None:
        """Load the model, whose first output is a vector for each text or for each token. Raises EmbedderUnavailable if
        the checksum is not `sha256`, OSError if a file is missing."""
        if hashlib.sha256(weights.read_bytes()).hexdigest() != sha256:
            raise EmbedderUnavailable(f"{weights} is not the file we know; install or build it again")
        onnxruntime = runtime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        # Threads that wait actively on busy cores delay all other threads (measured: 20 to 60 times slower).
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
        self._inputs = {each.name for each in self._session.get_inputs()}
        self._tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._max_tokens = max_tokens

    def embed(self, text: str) -> Vector | None:
        """The unit vector, or None if `text` is longer than the model's limit."""
        return self.embed_all((text,))[0]

    def embed_all(self, texts: Sequence[str]) -> list[Vector | None]:
        """The unit vector of each text; None for a text that exceeds the model's limit. The vector of a text does not
        depend on the other texts."""
        encoded = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        read = [ids for ids in encoded if len(ids) <= self._max_tokens]
        vectors = iter(self._run(read) if read else ())
        return [next(vectors) if len(ids) <= self._max_tokens else None for ids in encoded]

    def _run(self, encoded: Sequence[Sequence[int]]) -> Vector:
        """The vectors of tokenised texts, one row for each text."""
        tokens = np.zeros((len(encoded), max(map(len, encoded))), dtype=np.int64)
        mask = np.zeros_like(tokens)
        for place, ids in enumerate(encoded):
            tokens[place, : len(ids)] = ids
            mask[place, : len(ids)] = 1
        given = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
        output = self._session.run(None, {name: given[name] for name in self._inputs})[0]
        rows: NDArray[np.float32] = output
        if output.ndim == 3:
            rows = np.einsum("btd,bt->bd", output, mask.astype(np.float32)) / mask.sum(axis=1, keepdims=True)
        lengths = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
        vectors: Vector = (rows / lengths).astype(np.float32)
        return vectors
