"""nginx as a plain reverse proxy with kept-alive connections: what it is run as, and where it is had from."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from gateway.settings.environment import variable

CONFIG = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_buffer_size 1m;          # no prompt touches the disk
    client_max_body_size 20m;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 100000000;
    upstream provider {{
        server 127.0.0.1:{upstream};
        keepalive 1024;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        location / {{
            proxy_pass http://provider;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;         # a stream's chunks pass as they come
        }}
    }}
}}
"""
_PACKAGE = "nginx"
_CACHE = Path.home() / ".cache" / "thriftgate-loadtest"
_UNPACKED = _CACHE / "usr" / "sbin" / "nginx"


class NotHere(Exception):
    """Why a target cannot be run; the report says so."""


def find(*, install: bool | None = None, places: str = "") -> Path:
    """nginx's program, on PATH or among `places`. `install` None: have it fetched if this is root. Raises NotHere."""
    path = shutil.which("nginx", path=places or f"{variable('PATH')}:/usr/sbin:/usr/local/sbin:{_UNPACKED.parent}")
    if path:
        return Path(path)
    if install is False or (install is None and os.geteuid() != 0):
        raise NotHere("nginx is not installed; install it, or let --install-nginx do so")
    return _fetched()


def _fetched() -> Path:
    """Debian's package, unpacked beside the system: installing it would also start a server on port 80."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise NotHere("nginx is not installed, and there is no apt-get to fetch it with")
    _CACHE.mkdir(parents=True, exist_ok=True)
    try:
        if os.geteuid() == 0:
            _call("apt-get", "update", "-qq")
        _call("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", _PACKAGE)
        for package in _CACHE.glob("nginx_*.deb"):
            _call("dpkg-deb", "-x", str(package), str(_CACHE))
            package.unlink()
        _call(str(_UNPACKED), "-v")
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or b""
        raise NotHere(f"nginx could not be fetched: {said.decode(errors='replace').strip() or error}") from error
    return _UNPACKED


def _call(*command: str) -> None:
    subprocess.run(command, cwd=_CACHE, check=True, capture_output=True, timeout=180)


def version(program: Path) -> str:
    said = subprocess.run([program, "-v"], capture_output=True, check=False, timeout=10).stderr
    return said.decode(errors="replace").strip().rpartition("/")[2]
