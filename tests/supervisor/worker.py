"""A stand-in for a worker: serves on the socket it is handed, and tells what it was told and what happened to it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType

import orjson

from gateway.settings.environment import variable
from gateway.supervisor.heartbeat import FAILED, reporter

TOLD = orjson.loads(variable("THRIFTGATE_WORKER"))
SEEN = {"reloads": 0, "leaving": 0}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = orjson.dumps({"pid": os.getpid(), "told": TOLD, "omp": variable("OMP_NUM_THREADS"), **SEEN})
        self.send_response(200)
        self.end_headers()
        if self.path == "/slow":  # a stream that outlives the signal to leave
            for word in (b".", b".", b".", b".", b".", b"last"):
                self.wfile.write(word)
                time.sleep(0.1)
        else:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is no news."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = socket.socket(fileno=TOLD["fd"])
        self.socket.setblocking(False)  # another worker may have taken the connection that `select` saw
        self.server_name, self.server_port = "worker", 0


def reload(_: int, __: FrameType | None) -> None:
    SEEN["reloads"] += 1


def beat(config: str) -> None:
    """Say what the operator's file wants said; `mute` says nothing, as a worker does that hangs while it starts."""
    say = reporter(TOLD["heartbeat"])
    while "mute" not in config:
        say("ready")
        time.sleep(0.2)


def main() -> None:
    config = Path(TOLD["config"]).read_text()
    if "crash" in config:
        reporter(TOLD["heartbeat"])(f"{FAILED}Sorry: it cannot")
        sys.exit(3)
    server = Server()
    signal.signal(signal.SIGUSR1, lambda *_: SEEN.update(leaving=1))
    signal.signal(signal.SIGHUP, reload)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    threading.Thread(target=beat, args=(config,), daemon=True).start()
    server.serve_forever(poll_interval=0.01)
    server.server_close()
    sys.exit(0)


if __name__ == "__main__":
    main()
