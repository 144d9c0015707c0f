"""Exports a sentence-transformers model to an ONNX file with int8 weights. Needs the extra `st`."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from gateway.cache.packing import Vector
from gateway.cache.semantic.built import FACTS, TOKENIZER, WEIGHTS, Facts
from gateway.cache.semantic.minilm import MiniLM
from gateway.cache.semantic.onnx import OnnxModel
from gateway.cache.semantic.sentence_transformers import transformer
from gateway.errors import EmbedderUnavailable
from gateway.settings.environment import keep_onnxruntime_offline

log = logging.getLogger(__name__)

AGREEMENT = 0.998
SAMPLES = Path(__file__).parents[1] / "data" / "paraphrases.json"

_LARGEST_GRAPH = 2**31
_LEAST_WEIGHTS = 4096
"""Minimum number of elements of a tensor that is quantised. In a smaller tensor, int8 saves too little memory for the
error that it causes."""
_KNOTS = 33
_BATCH = 16


def build(source: str, out: Path, *, device: str = "cpu", texts: Sequence[str] = ()) -> Facts:
    """Write the encoder of `source` into the folder `out`. Blocks for minutes. `texts`: additional sample texts.

    `source`: a folder, or a name that sentence-transformers can load. Raises EmbedderUnavailable if quantised
    vectors differ from the original, and torch's errors.
    """
    original = _original(source, device)
    groups = _groups()
    samples = list(dict.fromkeys([*texts, *(text for group in groups for text in group)]))
    wanted = _encode(original, samples)
    max_tokens = int(original.max_seq_length or 512)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _export(original, folder / "float.onnx")
        original.tokenizer.backend_tokenizer.save(str(folder / TOKENIZER))
        for how, quantise in (("dynamic", _dynamic), ("weights", _weights)):
            quantise(folder / "float.onnx", folder / WEIGHTS)
            sha256 = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
            model = OnnxModel(folder / WEIGHTS, sha256, folder / TOKENIZER, max_tokens)
            vectors = [vector for text in samples if (vector := model.embed(text)) is not None]
            if len(vectors) != len(samples):
                raise EmbedderUnavailable(f"a sample text is longer than the {max_tokens} tokens that {source} reads")
            agreement = float(min(one @ other for one, other in zip(vectors, wanted, strict=True)))
            log.info("%s quantised by %s: agreement %.5f", source, how, agreement)
            if agreement >= AGREEMENT:
                facts = Facts(
                    source=source,
                    sha256=sha256,
                    dimensions=wanted.shape[1],
                    max_tokens=max_tokens,
                    quantised=how,
                    agreement=agreement,
                    knots=tuple(knots(model, groups)),
                )
                _install(folder, out, facts)
                return facts
    raise EmbedderUnavailable(f"no way of quantising {source} agrees with it to {AGREEMENT}; serve it as it is")


def knots(model: OnnxModel, groups: Sequence[Sequence[str]]) -> Iterator[tuple[float, float]]:
    """Yield pairs of equivalent cosines: (cosine of `model`, cosine of the packaged encoder).

    Two cosines are equivalent if the same share of sample pairs is below them. `groups`: the sample texts.
    """
    texts = [text for group in groups for text in group]
    own, packaged = (_cosines(each.embed, texts) for each in (model, MiniLM()))
    shares = np.linspace(0, 1, _KNOTS)
    yield -1.0, -1.0
    last = (-1.0, -1.0)
    for one, other in zip(np.quantile(own, shares), np.quantile(packaged, shares), strict=True):
        if one > last[0] + 1e-6 and other >= last[1]:
            last = round(float(one), 5), round(float(other), 5)
            yield last
    if last[0] < 1:
        yield 1.0, 1.0


def _cosines(embed: Callable[[str], Vector | None], texts: Sequence[str]) -> Vector:
    """Cosines between sample texts: of neighbours in the list, and of a sample of distant pairs. Neighbours are often
    paraphrases or near misses."""
    vectors = np.stack([vector for text in texts if (vector := embed(text)) is not None])
    every = vectors @ vectors.T
    near = np.concatenate([np.diagonal(every, offset) for offset in range(1, 12)])
    far = every[np.triu_indices(len(vectors), 12)]
    cosines: Vector = np.concatenate([near, far[:: max(1, len(far) // len(near))]])
    return cosines


def _groups() -> list[list[str]]:
    return [[*group["same"], *group["other"]] for group in orjson.loads(SAMPLES.read_bytes())]


def _original(source: str, device: str) -> Any:
    model = transformer(source, device, local=False)
    if getattr(model.tokenizer, "backend_tokenizer", None) is None:
        raise EmbedderUnavailable(f"{source} has no fast tokenizer, which the serving side needs")
    return model.eval()


def _encode(model: Any, texts: Sequence[str]) -> Vector:
    rows: Vector = model.encode(
        list(texts), batch_size=_BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
    )
    return rows.astype(np.float32, copy=False)


def _export(model: Any, path: Path) -> None:
    """Write the whole model as one ONNX graph. The pooling is included in the graph."""
    import torch

    model = model.to("cpu")
    given = dict(model.tokenize(["what is it", "why is it so, and how long will that be"]))
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in given]

    class Encoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            return self.model(dict(zip(names, inputs, strict=True)))["sentence_embedding"]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about names of axes, and about changes in later versions
        torch.onnx.export(
            Encoder(),
            tuple(given[name] for name in names),
            str(path),
            input_names=names,
            output_names=["sentence_embedding"],
            dynamic_shapes=(tuple({0: "texts", 1: "tokens"} for _ in names),),
            external_data=False,
            dynamo=True,
            verbose=False,
        )
    if path.stat().st_size >= _LARGEST_GRAPH:
        raise EmbedderUnavailable("a model of 2 GB and more does not fit one ONNX file; serve it as it is")


def _dynamic(source: Path, target: Path) -> None:
    """Quantise the weights and the activations to int8. The model is fastest with this kind of quantisation, but not
    always accurate enough."""
    keep_onnxruntime_offline()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True)


def _weights(source: Path, target: Path) -> None:
    """Quantise only the weights to int8, with a scale for each row or column. The model then computes in floating
    point."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(source))
    graph = model.graph
    for tensor in list(graph.initializer):
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.ndim != 2 or values.size < _LEAST_WEIGHTS:
            continue
        axis = 0 if any(node.op_type == "Gather" and node.input[0] == tensor.name for node in graph.node) else 1
        scales = np.maximum(np.abs(values).max(axis=1 - axis), 1e-12).astype(np.float32) / 127
        quantised = np.rint(values / (scales[:, None] if axis == 0 else scales)).astype(np.int8)
        stored, scale = f"{tensor.name}.int8", f"{tensor.name}.scale"
        zeros = f"{tensor.name}.zero"
        graph.initializer.remove(tensor)
        graph.initializer.extend(
            [
                numpy_helper.from_array(quantised, stored),
                numpy_helper.from_array(scales, scale),
                numpy_helper.from_array(np.zeros(len(scales), dtype=np.int8), zeros),
            ]
        )
        node = onnx.helper.make_node("DequantizeLinear", [stored, scale, zeros], [tensor.name], axis=axis)
        graph.node.insert(0, node)
    onnx.save(model, str(target))


def _install(folder: Path, out: Path, facts: Facts) -> None:
    """Copy the files to `out`. The facts are written last, because a folder without facts does not count as an
    encoder."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (WEIGHTS, TOKENIZER):
        shutil.copyfile(folder / name, out / name)
    (out / FACTS).write_bytes(orjson.dumps(facts.model_dump(), option=orjson.OPT_INDENT_2))
