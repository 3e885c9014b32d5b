"""A run on a Trackio server: this starts one on this machine, logs to it, and asks it what has arrived.

Run it with ``python examples/remote_server.py``. In earnest, the server runs elsewhere, started with
``TRACKIO_WRITE_TOKEN=<secret> trackio show --host 0.0.0.0``. Training scripts need no change: they find it by the
environment variables ``TRACKIO_SERVER_URL`` and ``TRACKIO_WRITE_TOKEN``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchrl.envs import GymEnv

from torchrl_trackio import TrackioLogger

SERVE = "import sys, trackio; trackio.show(open_browser=False, host='127.0.0.1', server_port=int(sys.argv[1]))"


@contextlib.contextmanager
def trackio_server(folder: Path, token: str) -> Iterator[str]:
    """A server that stores in ``folder`` what comes with the token; yields its URL, and ends it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "TRACKIO_DIR": str(folder.absolute()), "TRACKIO_WRITE_TOKEN": token}
    # What it prints would show the token.
    server = subprocess.Popen([sys.executable, "-c", SERVE, str(port)], env=environment, stdout=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/version")
        yield url
    finally:
        server.terminate()
        server.wait()


def wait_for(url: str) -> None:
    """Return once something answers there."""
    for _ in range(600):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(url, timeout=5).close()
        time.sleep(0.1)
    raise TimeoutError(f"nothing answers at {url}")


def ask(url: str, function: str, **arguments: Any) -> Any:
    """What the server has stored; reading needs no token."""
    request = urllib.request.Request(
        f"{url}/api/{function}", json.dumps(arguments).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)["data"]


def main() -> None:
    """Log some episodes of a random policy to the server, and print what it has of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", default="pendulum", help="Trackio's project")
    parser.add_argument("--folder", type=Path, default=Path("trackio-server"), help="where the server stores")
    parser.add_argument("--episodes", type=int, default=20)
    args = parser.parse_args()

    token = secrets.token_urlsafe()
    with trackio_server(args.folder, token) as url:
        server_url = f"{url}/?write_token={token}"  # instead of the environment variables
        with TrackioLogger("random-policy", args.project, server_url=server_url) as logger:
            logger.log_hparams({"env": {"name": "Pendulum-v1"}, "policy": "random"})
            env = GymEnv("Pendulum-v1")
            for number in range(args.episodes):
                reward = env.rollout(200)["next", "reward"]
                logger.log_metrics({"episode": {"reward": reward.sum(), "worst_step": reward.min()}}, step=number)
            logger.flush()  # returns once the server has it all
        run = ask(url, "get_run_summary", project=args.project, run="random-policy")
        print(f"{url} has {run['num_logs']} rows of {run['metrics']}, and {run['config']}")
    print(f"The server has ended. See what it has stored with\n  TRACKIO_DIR={args.folder} trackio show")


if __name__ == "__main__":
    main()
