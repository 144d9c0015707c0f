"""The server of the packaged local model (llama.cpp): `python -m gateway.backends.providers.llama`."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

BATCH_TOKENS = 512
"""Number of prompt tokens that are processed in one batch."""
CACHE_RAM_MIB = 64
"""MiB of memory in which earlier prompts are cached. llama.cpp's default is 8 GiB."""
SPARE_HTTP_THREADS = 8
"""Number of HTTP threads in addition to one thread per slot. These threads serve health checks and requests that wait
for a slot."""
QUIET = 1
"""llama.cpp's log level: errors and warnings."""


def parameters(arguments: argparse.Namespace) -> Any:
    """The parameters of llama.cpp as an object, made from the command-line arguments."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(arguments.gguf)
    params.model_alias = {arguments.gguf.stem}
    params.hostnames = [arguments.host]
    params.port = arguments.port
    params.n_parallel = arguments.slots
    params.n_ctx = arguments.window * arguments.slots  # the context is divided among the slots
    params.n_gpu_layers = arguments.gpu_layers
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = arguments.threads
    params.n_threads_http = arguments.slots + SPARE_HTTP_THREADS
    params.cache_ram_mib = CACHE_RAM_MIB
    params.cors_origins = ""  # no web page may call the server
    params.cors_credentials = False
    params.ui = False
    params.endpoint_slots = False
    params.endpoint_metrics = True  # the gateway reads the server's load for routing
    params.verbosity = QUIET
    return params


def main() -> None:
    """Run the server until the parent process has ended or a signal arrives."""
    parent = os.getppid()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--window", type=int, default=2048, help="tokens of each slot")
    parser.add_argument("--gpu-layers", type=int, default=0)
    arguments = parser.parse_args()

    import xllamacpp

    server = xllamacpp.Server(parameters(arguments))
    print(server.listening_address, flush=True)  # noqa: T201 - shown to a person who starts it
    while os.getppid() == parent:
        time.sleep(1)


if __name__ == "__main__":
    main()
