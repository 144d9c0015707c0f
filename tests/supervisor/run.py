"""Runs a Supervisor as `thriftgate serve` would, with the stand-in worker: `run.py DATA_DIR PORT [OPTION=VALUE…]`."""

from __future__ import annotations

import sys
from pathlib import Path

from gateway.settings.files import ConfigError
from gateway.settings.gateway import load_settings
from gateway.supervisor import Supervisor


def main() -> None:
    data, port, *rest = sys.argv[1:]
    options = dict(word.split("=", 1) for word in rest)
    config = Path(options["config"]) if "config" in options else None
    policies = [Path(options["policies"])] if "policies" in options else []
    try:
        Supervisor(
            load_settings(config, Path(data), policies),
            config=config,
            workers=int(options.get("workers", 1)),
            port=int(port),
            announce=lambda line: print(line, flush=True),
            facts={"tour": {"variable": "X"}},
            worker_command=[sys.executable, str(Path(__file__).with_name("worker.py"))],
        ).run()
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
