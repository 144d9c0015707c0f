"""`thriftgate embedder`: converts another embedding model for the semantic cache."""

from __future__ import annotations

from pathlib import Path

import click
import orjson

from gateway.cli.options import Context, common
from gateway.errors import EmbedderUnavailable


@click.group()
def embedder() -> None:
    """Convert another embedding model for the semantic cache."""


@embedder.command()
@common
@click.argument("model")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Output folder; default: below the data directory."
)
@click.option("--device", default="cpu", show_default=True, help="Device that runs the original model: cpu, cuda, mps.")
@click.option(
    "--samples",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help='Further texts on which the vectors are compared: JSON lines {"text"}.',
)
def build(context: Context, model: str, out: Path | None, device: str, samples: Path | None) -> None:
    """Convert a model to an int8 ONNX embedder.

    MODEL: a folder, or a name that sentence-transformers finds. The new vectors are compared with the original's. Use
    the result with embedder.model: FOLDER. Answers cached under another embedder then give no semantic hits. Needs the
    extra `st`.

    \b
    thriftgate embedder build intfloat/multilingual-e5-small
    """
    try:
        from gateway.cache.semantic.build import build as build_it
    except ImportError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'thriftgate[st]'.") from error
    target = out or context.settings().paths.models / f"{Path(model).name}-int8"
    try:
        facts = build_it(model, target, device=device, texts=_texts(samples))
    except ImportError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'thriftgate[st]'.") from error
    except (EmbedderUnavailable, OSError) as error:
        raise click.ClickException(f"{model} could not be built: {error}") from error
    values = {
        "path": str(target),
        "name": facts.name,
        "dimensions": facts.dimensions,
        "max_tokens": facts.max_tokens,
        "quantised": facts.quantised,
        "agreement": round(facts.agreement, 5),
    }
    context.print(
        values, f"{facts.name}: agrees with the original to {facts.agreement:.4f}. Set embedder.model: {target}"
    )


def _texts(samples: Path | None) -> list[str]:
    if samples is None:
        return []
    try:
        return [str(orjson.loads(line)["text"]) for line in samples.read_bytes().splitlines() if line.strip()]
    except (orjson.JSONDecodeError, LookupError, TypeError) as error:
        raise click.ClickException(f'{samples}: give one {{"text"}} a line ({error}).') from error
