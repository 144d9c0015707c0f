"""An encoder made by `thriftgate embedder build`. It is a folder with weights, tokenizer and facts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.cache.semantic.embedder import Model, ModelEmbedder
from gateway.errors import EmbedderUnavailable

FACTS, WEIGHTS, TOKENIZER = "embedder.json", "model.onnx", "tokenizer.json"


class Facts(BaseModel):
    """The facts about an encoder, which are in the file `embedder.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    """Name of the model from which the encoder was made."""
    sha256: str
    dimensions: int = Field(gt=0)
    max_tokens: int = Field(gt=0)
    quantised: str
    """The kind of quantisation that was used."""
    agreement: float
    """Minimum cosine between the vector of this encoder and the vector of the original model, over all sample texts."""
    knots: tuple[tuple[float, float], ...]
    """Pairs (cosine of this encoder, equivalent cosine of the packaged encoder), in ascending order. They are used to
    convert cosines, because the thresholds of the verifier are for the packaged encoder."""

    @property
    def name(self) -> str:
        """The name of the encoder. Every partition's key contains it, so vectors of different encoders are never
        compared.
        """
        return f"{Path(self.source).name}-int8@{self.sha256[:8]}"


def is_built(folder: str) -> bool:
    return (Path(folder) / FACTS).is_file()


def read_facts(folder: Path) -> Facts:
    """The facts about the encoder in `folder`. Raises EmbedderUnavailable if `embedder build` did not make the
    folder."""
    try:
        return Facts.model_validate(orjson.loads((folder / FACTS).read_bytes()))
    except (OSError, orjson.JSONDecodeError, ValidationError) as error:
        raise EmbedderUnavailable(f"{folder / FACTS} cannot be read: {error}") from error


class BuiltEmbedder(ModelEmbedder):
    """Implements `Embedder` with an encoder that `embedder build` made."""

    def __init__(self, folder: str) -> None:
        """`folder`: the folder of the encoder. Raises EmbedderUnavailable if the folder is incomplete."""
        facts = read_facts(Path(folder))
        super().__init__(
            partial(load, Path(folder), facts),
            name=facts.name,
            dimensions=facts.dimensions,
            max_tokens=facts.max_tokens,
        )
        self.knots: Sequence[tuple[float, float]] = facts.knots


def load(folder: Path, facts: Facts) -> Model:
    """The loaded model. Raises EmbedderUnavailable if the weights do not match `facts`."""
    from gateway.cache.semantic.onnx import OnnxModel

    return OnnxModel(folder / WEIGHTS, facts.sha256, folder / TOKENIZER, facts.max_tokens)
