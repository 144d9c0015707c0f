"""LiteLLM's proxy as a peer row, on request: a release of its own choosing in a virtual environment of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtests.ports import free_port
from loadtests.processes import Cores, end, start, wait_for
from loadtests.targets import NotHere, Target, logged

RELEASE = "litellm[proxy]==1.106.2"
"""The one that requirements.lock has; never 1.82.7, 1.82.8 or 1.107.0, which were hijacked."""
_HOME = Path.home() / ".cache" / "thriftgate-loadtest" / "litellm"
_START_S = 180.0
_KEY = "sk-loadtest"
CONFIG = """\
model_list:
  - model_name: loadtest
    litellm_params:
      model: openai/loadtest
      api_base: http://127.0.0.1:{upstream}/v1
      api_key: none
litellm_settings:
  num_retries: 0
  telemetry: false
general_settings:
  master_key: {key}
"""


@contextmanager
def running_litellm(folder: Path, cores: Cores, upstream: int) -> Iterator[Target]:
    """One worker, no database. Raises NotHere."""
    program, port = _installed(), free_port()
    folder.mkdir(parents=True)
    config = CONFIG.format(upstream=upstream, key=_KEY)
    (folder / "config.yaml").write_text(config)
    command = [
        str(program.parent / "python"), str(program), "--config", str(folder / "config.yaml"),
        "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1",
    ]  # fmt: skip
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    with logged(folder) as log:
        process = start(command, cores.measured, log=log, environment=offline)
        try:
            try:
                wait_for(f"http://127.0.0.1:{port}/health/liveliness", process, folder / "log", _START_S)
            except RuntimeError as error:
                raise NotHere(f"litellm did not start: {error}") from error
            printed = {"config.yaml": config, "version": RELEASE}
            yield Target("litellm", port, process.pid, keys={"": _KEY}, printed=printed)
        finally:
            end(process)


def _installed() -> Path:
    """The proxy's program; made the first time. Raises NotHere."""
    program, stamp = _HOME / "bin" / "litellm", _HOME / "release"
    if program.is_file() and stamp.is_file() and stamp.read_text() == RELEASE:
        return program
    try:
        venv = [sys.executable, "-m", "venv", "--clear", str(_HOME)]
        subprocess.run(venv, check=True, capture_output=True, timeout=120)
        pip = [str(_HOME / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", RELEASE]
        subprocess.run(pip, check=True, capture_output=True, timeout=900)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        raise NotHere(f"{RELEASE} could not be installed: {said[-300:] or error}") from error
    stamp.write_text(RELEASE)
    return program
