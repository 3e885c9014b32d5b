"""What the loggers for torchrl can do: each cell of the README's table, run.

python tests/benchmarks/features.py                         # every feature, every logger, as Markdown
python tests/benchmarks/features.py --only MLflow --features pickled forked
python tests/benchmarks/features.py --check README.md docs/comparison.md   # status 1 if these say something else

Needs Linux and what each logger needs, here in the versions that load beside torch 2.13 for the CPU: `pip install wandb
tensorboard mlflow "moviepy<2" torchcodec==0.13 "gymnasium[classic-control]" matplotlib psutil imageio-ffmpeg tqdm`.
Each cell is a fresh process in a fresh folder, with a time limit; then what it has stored is read from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from feature_probes import ALTERNATIVES, PROBES, Probe, Session, logger_class
from feature_stores import READERS
from tqdm import tqdm

LIMIT = 120  # seconds for a cell
MARKERS = ("<!-- features -->", "<!-- /features -->")
PROGRAM = "import sys\nfrom features import child\nif __name__ == '__main__':\n    child(*sys.argv[1:])\n"


def child(feature: str, kind: str, options: str) -> None:
    """Run one probe in this process and leave a report of what was raised."""
    probe, session = PROBES[feature], Session(kind, json.loads(options))
    if probe.needs and not hasattr(logger_class(kind), probe.needs):
        Path("report.json").write_text(json.dumps({"missing": probe.needs}))
        return
    session.attempt(lambda: probe.run(session), session.close)
    Path("report.json").write_text(json.dumps({"errors": session.errors}))


def run(feature: str, kind: str) -> dict[str, Any]:
    """A cell, and what it rests on; tried again with what the logger offers for it, if the plain call does not do."""
    found = attempt(feature, kind, {})
    if found["cell"] != "yes" and (options := ALTERNATIVES.get((feature, kind))):
        again = attempt(feature, kind, options)
        how = ", ".join(f"`{name}={value!r}`" for name, value in options.items())
        if again["cell"] == "yes":
            found["cell"] = f"with {how}"
        elif again["cell"] != found["cell"]:
            found["cell"] += f"; {again['cell']} with {how}"
        found["again"] = again
    return found


def attempt(feature: str, kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """One process, and the judgement of what it has stored."""
    probe = PROBES[feature]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        commit = prepare(folder, kind)
        status = execute(folder, probe, [feature, kind, json.dumps(options)])
        report = json.loads(path.read_text()) if (path := folder / "report.json").exists() else {}
        result = {"feature": feature, "logger": kind, "status": status, **report}
        if probe.killed or status is None:
            time.sleep(3)  # W&B's helper outlives the process, and may go on storing what it has received
        try:
            stored = READERS[kind](folder / "store")
            stored.commit = commit
            verdict = probe.judge(stored)
        except Exception as error:  # noqa: BLE001 - a store that cannot be read is a result
            verdict, result["unread"] = False, repr(error)
        output = (folder / "output").read_text(errors="replace")
        return {**result, "cell": word(probe, verdict, result), "verdict": verdict, "output": output[-2000:]}


def prepare(folder: Path, kind: str) -> str:
    """The program, in a git repository of its own; returns the commit."""
    (folder / "store").mkdir()
    if kind == "MLflow":
        (folder / "store" / "mlflow.db").write_bytes(mlflow_database())
    (folder / "train.py").write_text(PROGRAM)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(folder)]
    for command in (["init", "-q"], ["add", "train.py"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


@cache
def mlflow_database() -> bytes:
    """An empty database, which takes MLflow many seconds to make."""
    from mlflow import MlflowClient

    with tempfile.TemporaryDirectory() as folder:
        MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments()
        return Path(folder, "mlflow.db").read_bytes()


def execute(folder: Path, probe: Probe, arguments: list[str]) -> int | None:
    """Run the program to its end; its exit status, or nothing if it had to be ended."""
    command = [sys.executable, "-W", "ignore", "train.py", *arguments]
    if probe.isolated:
        command = ["unshare", "--map-root-user", "--net", *command]
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(folder, probe, arguments[1]), stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None


def environment(folder: Path, probe: Probe, kind: str) -> dict[str, str]:
    """Where to store, no telemetry, and the other loggers as they are without this package."""
    found = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        "TRACKIO_DIR": str(folder / "store"),
        "HF_HUB_OFFLINE": "1",
        "WANDB_SILENT": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    if kind != "torchrl-trackio":
        found["TORCHRL_LOGGER_PLUGINS"] = ""
    if probe.ffmpeg:
        found.update(system_ffmpeg(folder))
    return found


def system_ffmpeg(folder: Path) -> dict[str, str]:
    """A system's FFmpeg, for the loggers: imageio-ffmpeg's program, PyAV's libraries."""
    import imageio_ffmpeg

    wheel = Path(find_spec("av").origin).parents[1] / "av.libs"
    (system := folder / "ffmpeg").mkdir()
    (system / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    for path in [*wheel.glob("libav*"), *wheel.glob("libsw*")]:
        (system / f"{path.name.split('-')[0]}.so.{path.name.split('.so.')[1].split('.')[0]}").symlink_to(path)
    return {"PATH": f"{system}:{os.environ['PATH']}", "LD_LIBRARY_PATH": f"{system}:{wheel}"}


def word(probe: Probe, verdict: Any, result: dict[str, Any]) -> str:
    """What the table says."""
    errors = result.get("errors", [])
    if "missing" in result:
        return "no"
    if result["status"] is None or any(error.startswith("TimeoutError") for error in errors):
        return "hangs"
    if isinstance(verdict, dict):
        errors = errors if len(errors) >= len(verdict) else []
        parts = [part for part, holds in verdict.items() if holds]
        verdict = len(parts) == len(verdict) or (f"{', '.join(parts)} only" if parts else False)
    if verdict is False:
        return "raises" if errors else "crashes" if result["status"] and not probe.killed else probe.otherwise
    return "yes" if verdict is True else verdict


def table(cells: dict[tuple[str, str], str]) -> str:
    """The cells as Markdown."""
    kinds = list(dict.fromkeys(kind for _, kind in cells))
    lines = [f"| | {' | '.join(kinds)} |", "| --- " * (len(kinds) + 1) + "|"]
    for feature in dict.fromkeys(feature for feature, _ in cells):
        lines.append(f"| {PROBES[feature].title} | {' | '.join(cells[feature, kind] for kind in kinds)} |")
    return "\n".join(lines)


def differences(page: Path, cells: dict[tuple[str, str], str]) -> list[str]:
    """Where the table between the page's markers, which may lack rows, says something else."""
    lines = page.read_text().partition(MARKERS[0])[2].partition(MARKERS[1])[0].split("\n")
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    found = {(PROBES[feature].title, kind): cell for (feature, kind), cell in cells.items()}
    wrong = [f"{row[0]}: no such feature" for row in rows if row[0] not in {probe.title for probe in PROBES.values()}]
    for row in rows:
        for kind, stated in zip(header[1:], row[1:], strict=True):
            if found.get((row[0], kind), stated) != stated:
                wrong.append(f"{row[0]}, {kind}: {stated!r} in {page}, {found[row[0], kind]!r} here")
    return wrong


def versions() -> str:
    """What was run, and on what."""
    names = "torchrl-trackio torchrl trackio wandb tensorboard mlflow torch moviepy torchcodec"
    found = ", ".join(f"{name} {version(name)}" for name in names.split())
    system = "a system" if shutil.which("ffmpeg") else "no system"
    return f"{found}; Python {platform.python_version()}, {platform.system()}, {system} FFmpeg"


def main() -> int:
    """Run the cells and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=READERS, default=list(READERS), metavar="LOGGER")
    parser.add_argument("--features", nargs="+", choices=PROBES, default=list(PROBES), metavar="FEATURE")
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time")
    parser.add_argument("--json", action="store_true", help="print what each cell rests on, a line each, instead")
    parser.add_argument("--check", type=Path, nargs="+", default=[], metavar="PAGE", help="whose tables are compared")
    args = parser.parse_args()
    ran_on = versions()  # raises where one is not installed
    todo = [(feature, kind) for feature in args.features for kind in args.only]
    cells = {}
    with ThreadPoolExecutor(args.jobs) as pool:
        results = pool.map(lambda cell: run(*cell), todo)
        for cell, result in zip(todo, tqdm(results, total=len(todo), unit="cell"), strict=True):
            cells[cell] = result["cell"]
            if args.json:
                print(json.dumps(result), flush=True)
    if not args.json:
        print(f"{table(cells)}\n\n{ran_on}")
    wrong = [difference for page in args.check for difference in differences(page, cells)]
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
