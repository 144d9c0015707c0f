"""Runs a Supervisor as `thriftgate serve` would: `run.py DATA_DIR PORT [OPTION=VALUE…]`.

Its workers are stand-ins unless `real=1`. `patience_s`: after how much silence a worker counts as frozen, or as one
that does not start. `last_drain_s`: how long the end waits for the ledger database.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gateway.settings.files import ConfigError
from gateway.settings.gateway import load_settings
from gateway.supervisor import ledger_service, workers
from gateway.supervisor.supervisor import Supervisor


def main() -> None:
    data, port, *rest = sys.argv[1:]
    options = dict(word.split("=", 1) for word in rest)
    config = Path(options["config"]) if "config" in options else None
    policies = [Path(options["policies"])] if "policies" in options else []
    if "patience_s" in options:
        workers.SILENT_S = workers.OPEN_S = float(options["patience_s"])
        workers.CHECK_S = 0.1
    ledger_service.LAST_DRAIN_S = float(options.get("last_drain_s", ledger_service.LAST_DRAIN_S))
    stand_in = [sys.executable, str(Path(__file__).with_name("worker.py"))]
    try:
        Supervisor(
            load_settings(config, Path(data), policies),
            config=config,
            workers=int(options.get("workers", 1)),
            port=int(port),
            announce=lambda line: print(line, flush=True),
            facts={"tour": {"variable": "X"}},
            worker_command=None if "real" in options else stand_in,
        ).run()
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
