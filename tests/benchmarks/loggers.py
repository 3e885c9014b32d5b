"""What logging costs: this logger against torchrl's own ones and bare Trackio.

python tests/benchmarks/loggers.py                 # all loggers that are installed, all workloads, five rounds
python tests/benchmarks/loggers.py --rounds 3 --workloads video histogram

Each measurement is a fresh process with a fresh folder; the loggers take turns, so that a noisy moment hits them all
alike. The table shows medians, and ratios to torchrl's built-in Trackio logger.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

NAMES = [f"train/metric{i}" for i in range(20)]
LOGGERS = ("torchrl-trackio", "built-in", "bare trackio", "csv", "tensorboard", "wandb offline")
NEEDS = {"tensorboard": "tensorboard", "wandb offline": "wandb"}


def make_logger(kind: str, folder: Path) -> Any:
    """A logger that stores below a folder."""
    if kind == "torchrl-trackio":
        from torchrl_trackio import TrackioLogger

        return TrackioLogger("run", "benchmark", auto_log_cpu=False, auto_log_gpu=False)
    if kind == "built-in":
        from torchrl.record.loggers.trackio import TrackioLogger

        return TrackioLogger("run", "benchmark", auto_log_cpu=False, auto_log_gpu=False)
    if kind == "bare trackio":
        return Bare()
    if kind == "csv":
        from torchrl.record.loggers import CSVLogger

        return CSVLogger("run", str(folder))
    if kind == "tensorboard":
        from torchrl.record.loggers import TensorboardLogger

        return TensorboardLogger("run", str(folder))
    from torchrl.record.loggers import WandbLogger

    return WandbLogger("run", offline=True, save_dir=str(folder), project="benchmark", log_env_packages=False)


class Bare:
    """``trackio.Run`` itself, given numbers and files that it can store."""

    def __init__(self) -> None:
        import trackio

        self.experiment = trackio.init("benchmark", name="run", auto_log_cpu=False, auto_log_gpu=False)

    def log_scalar(self, name: str, value: Any, step: int) -> None:
        """One row of one number."""
        self.experiment.log({name: value}, step=step)

    def log_metrics(self, metrics: dict[str, Any], step: int) -> None:
        """One row; the tensors are converted beforehand."""
        self.experiment.log(metrics, step=step)

    def log_video(self, name: str, video: Any, step: int) -> None:
        """Encoded by the ffmpeg on the PATH."""
        import trackio

        self.experiment.log({name: trackio.Video(video.numpy(), fps=32, format="mp4")}, step=step)

    def log_histogram(self, name: str, data: Any, step: int, bins: int) -> None:
        """Counted by Trackio."""
        import trackio

        self.experiment.log({name: trackio.Histogram(data, num_bins=bins)}, step=step)


def store(kind: str, logger: Any) -> None:
    """Return when everything is stored."""
    if kind == "torchrl-trackio":
        logger.flush()
    elif kind == "tensorboard":
        logger.experiment.flush()
    elif kind != "csv":
        logger.experiment.finish()


# A workload logs to a logger and returns how long the training thread was held, in seconds: by one call, or by the 20
# of one step.


def scalar(_: str, logger: Any) -> float:
    """One scalar a step, 5000 steps."""
    start = time.perf_counter()
    for step in range(5000):
        logger.log_scalar("train/loss", 0.5 * step, step=step)
    return (time.perf_counter() - start) / 5000


def scalars(_: str, logger: Any) -> float:
    """20 scalars of a step by log_scalar, as the Trainer logs, 500 steps."""
    start = time.perf_counter()
    for step in range(500):
        for name in NAMES:
            logger.log_scalar(name, 0.5 * step, step=step)
    return (time.perf_counter() - start) / 500


def metrics(kind: str, logger: Any) -> float:
    """log_metrics of 20 0-d tensors, 500 steps."""
    import torch

    values = {name: torch.tensor(0.5 * i) for i, name in enumerate(NAMES)}
    if kind == "bare trackio":
        values = {name: value.item() for name, value in values.items()}
    start = time.perf_counter()
    for step in range(500):
        logger.log_metrics(values, step=step)
    return (time.perf_counter() - start) / 500


def loop(_: str, logger: Any) -> float:
    """What 20 scalars add to a training step of about 2 ms, 500 steps."""
    import torch

    torch.set_num_threads(1)
    left = right = torch.randn(300, 300)

    def steps(log: bool) -> float:
        start = time.perf_counter()
        for step in range(500):
            until = time.perf_counter() + 0.002
            while time.perf_counter() < until:
                left @ right
            if log:
                for name in NAMES:
                    logger.log_scalar(name, 0.5 * step, step=step)
        return time.perf_counter() - start

    plain = steps(log=False)
    return (steps(log=True) - plain) / 500


def video(kind: str, logger: Any) -> float:
    """A second video of 200 frames of 256 x 256."""
    import torch

    position = torch.arange(256)
    frames = torch.stack([(position + 2 * t) % 256 for t in range(200)]).to(torch.uint8)
    video = frames[:, None, None, :].expand(200, 3, 256, 256).clone()[None]
    logger.log_video("eval/video", video, step=0)
    if kind == "torchrl-trackio":  # the others have stored the first one already
        logger.flush()
    start = time.perf_counter()
    logger.log_video("eval/video", video, step=1)
    return time.perf_counter() - start


def histogram(_: str, logger: Any) -> float:
    """A histogram of a million values, 20 times, with 20 ms between two."""
    import torch

    data = torch.randn(1_000_000)
    held = []
    for step in range(20):
        time.sleep(0.02)
        start = time.perf_counter()
        logger.log_histogram("advantages", data, step=step, bins=64)
        held.append(time.perf_counter() - start)
    return statistics.median(held)


WORKLOADS: dict[str, Callable[[str, Any], float]] = {
    "scalar": scalar,
    "scalars": scalars,
    "metrics": metrics,
    "loop": loop,
    "video": video,
    "histogram": histogram,
}
SKIPPED = {  # what a logger cannot do
    ("video", "csv"): "writes raw tensors, not videos",
    ("video", "tensorboard"): "needs moviepy",
    ("video", "wandb offline"): "needs moviepy",
    ("histogram", "csv"): "has no histograms",
}


def measure(kind: str, workload: str) -> dict[str, float]:
    """Run one workload in this process."""
    folder = Path(os.environ["TRACKIO_DIR"])
    logger = make_logger(kind, folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    held = WORKLOADS[workload](kind, logger)
    store(kind, logger)
    total = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"held": held, "total": total, "rows": count_rows(folder), "bytes": size, "memory": memory * 1024}


def count_rows(folder: Path) -> int:
    """The rows in Trackio's databases; 0 for what is no Trackio."""
    count = 0
    for path in folder.glob("*.db"):
        with closing(sqlite3.connect(path)) as connection:
            count += connection.execute("SELECT COUNT(*) FROM metrics").fetchone()[0]
    return count


def in_fresh_process(kind: str, workload: str) -> dict[str, float] | None:
    """The measurement of a process of its own; nothing if the logger is not installed or fails."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "TRACKIO_DIR": folder,
            "HF_HUB_OFFLINE": "1",
            "WANDB_SILENT": "true",
            "WANDB_DIR": folder,
        }
        environment["PATH"] = with_ffmpeg() + os.pathsep + environment["PATH"]
        command = [sys.executable, "-W", "ignore", __file__, "--measure", kind, workload]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if done.returncode == 0 and lines else None


def with_ffmpeg() -> str:
    """A folder with an ffmpeg, which the built-in needs: that of imageio-ffmpeg, if there is none on the PATH."""
    folder = Path(tempfile.gettempdir()) / "benchmark-ffmpeg"
    if shutil.which("ffmpeg") is None and importlib.util.find_spec("imageio_ffmpeg"):
        import imageio_ffmpeg

        folder.mkdir(exist_ok=True)
        if not (folder / "ffmpeg").exists():
            (folder / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    return str(folder)


def import_share(rounds: int) -> float:
    """The share of ``import torch`` that the discovery bridge takes."""
    code = (
        "import time; a = time.perf_counter(); import torch; b = time.perf_counter()\n"
        "from torchrl_trackio._autoload import register; register(); c = time.perf_counter(); print((c - b) / (b - a))"
    )
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    shares = []
    for _ in range(rounds):
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        shares.append(float(done.stdout))
    return statistics.median(shares)


def table(results: dict[tuple[str, str], list[dict[str, float]]], workload: str) -> str:
    """The medians of one workload, as Markdown."""
    lines = ["| logger | held (us) | until stored (ms) | rows | kB stored | memory (MB) |", "| --- " * 6 + "|"]
    reference = results.get((workload, "built-in"))
    for kind in LOGGERS:
        found = results.get((workload, kind))
        if not found:
            continue
        median = {key: statistics.median(result[key] for result in found) for key in found[0]}
        base = {key: statistics.median(result[key] for result in reference) for key in median} if reference else {}

        def cell(key: str, factor: float, median: dict[str, float] = median, base: dict[str, float] = base) -> str:
            ratio = f" ({median[key] / base[key]:.2f})" if base.get(key) else ""
            return f"{median[key] * factor:,.0f}{ratio}"

        rows = f"{median['rows']:.0f}" if median["rows"] else ""
        lines.append(
            f"| {kind} | {cell('held', 1e6)} | {cell('total', 1e3)} | {rows} | {cell('bytes', 1e-3)} "
            f"| {median['memory'] / 1e6:.0f} |"
        )
    return "\n".join(lines)


def versions() -> str:
    """What was measured, and on what."""
    from importlib.metadata import version

    names = ("torchrl-trackio", "trackio", "torchrl", "torch")
    machine = f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}"
    return f"{', '.join(f'{name} {version(name)}' for name in names)}; {machine}"


def main() -> None:
    """Measure everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loggers", nargs="+", choices=LOGGERS, default=LOGGERS)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(*args.measure)))
        return
    from tqdm import tqdm

    loggers = [kind for kind in args.loggers if kind not in NEEDS or importlib.util.find_spec(NEEDS[kind])]
    todo = [(w, k) for _ in range(args.rounds) for w in args.workloads for k in loggers if (w, k) not in SKIPPED]
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    for workload, kind in (bar := tqdm(todo, unit="process")):
        bar.set_postfix_str(f"{workload}, {kind}")
        if (result := in_fresh_process(kind, workload)) is None:
            tqdm.write(f"{kind} failed at {workload}")
        else:
            results.setdefault((workload, kind), []).append(result)
    print(
        f"\n{versions()}\nMedians of {args.rounds} rounds; in brackets the ratio to torchrl's built-in Trackio logger."
    )
    for workload in args.workloads:
        print(f"\n{WORKLOADS[workload].__doc__}\n\n{table(results, workload)}")
    print(f"\nThe bridge takes {import_share(args.rounds):.2%} of `import torch`.")


if __name__ == "__main__":
    main()
