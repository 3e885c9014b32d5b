"""A real Trackio server on this machine, to be killed and restarted."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import reading

TOKEN = "a-write-token-of-the-tests"


def free_port() -> int:
    """A port that nothing listens on."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server with a folder and a port of its own.

    Args:
        folder: where it stores.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        show = f"trackio.show(open_browser=False, block_thread=True, host='127.0.0.1', server_port={self.port})"
        environment = {**os.environ, "TRACKIO_DIR": str(self.folder), "TRACKIO_WRITE_TOKEN": TOKEN}
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import trackio; {show}"], env=environment, stdout=null, stderr=null
        )
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{self.url}/version", timeout=5).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise TimeoutError("the Trackio server did not start")

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ask(self, function: str, **arguments: Any) -> Any:
        """What a function of its HTTP interface returns."""
        request = urllib.request.Request(
            f"{self.url}/api/{function}", json.dumps(arguments).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)["data"]

    def rows(self, project: str, run: str = "run") -> list[dict[str, Any]]:
        """The rows of a run."""
        return self.ask("get_logs", project=project, run=run)

    def steps(self, project: str, name: str = "x", run: str = "run") -> list[int]:
        """The steps of a metric, in their order."""
        return sorted(row["step"] for row in self.rows(project, run) if name in row)

    def config(self, project: str, run: str = "run") -> dict[str, Any]:
        """The user's part of the configuration of a run."""
        return reading.without_records(self.ask("get_run_summary", project=project, run=run)["config"] or {})


@contextmanager
def behind_login(server: Server, login: str) -> Iterator[str]:
    """The address of a proxy that lets through to the server only who has the login, ``name:password``."""
    expected = f"Basic {base64.b64encode(login.encode()).decode()}"

    class Proxy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            status, answer = 401, b"who are you?"
            if self.headers["Authorization"] == expected:
                kept = {name: self.headers[name] or "" for name in ("Content-Type", "x-trackio-write-token")}
                request = urllib.request.Request(f"{server.url}{self.path}", body or None, kept)
                with urllib.request.urlopen(request) as response:
                    status, answer = response.status, response.read()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        Thread(target=proxy.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{proxy.server_port}"
        proxy.shutdown()
