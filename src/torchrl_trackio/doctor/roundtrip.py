"""A write-read round trip through a real logger, in a process and a folder of its own.

The folder is made within Trackio's, where it meets the same disk, rights and locks as real runs, but shows in no
dashboard, and is removed however the process ends. The process imports torchrl as a script does, before this package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROJECT, _RUN, _STEP, _FRAMES = "torchrl-trackio-doctor", "round-trip", 3, 5
_LOGGED = {"train/loss": [(_STEP, 0.5)], "optim/lr": 0.1, "eval/video": [(_STEP, _FRAMES)]}
_SECONDS = 60.0  # the longest that it may take once the same packages are imported here
_REMOTE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")
_CODE = """
from torchrl.record.loggers import get_logger
from torchrl_trackio.doctor import roundtrip
roundtrip.main(get_logger)
"""


def said(error: BaseException) -> str:
    """The error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")


@dataclass
class RoundTrip:
    """A round trip that is under way.

    Args:
        folder: Trackio's folder, if there is a Trackio to say.
        refused: why the folder cannot be written to, or asked for; the round trip is then in a temporary one.
        process: the process of it, or why there is none.
    """

    folder: Path | None
    refused: BaseException | None
    process: subprocess.Popen[str] | OSError

    def answer(self) -> dict[str, Any]:
        """Wait for what :func:`main` prints.

        Raises:
            RuntimeError: if it failed before; the text is the last line of its standard error.
            TimeoutError: if it takes longer than a minute.
            OSError: if it could not be started.
        """
        if isinstance(self.process, OSError):
            raise self.process
        try:
            out, err = self.process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"it did not end within {_SECONDS:.0f} s") from None
        answers = [line for line in out.splitlines() if line.startswith("{")]
        if self.process.returncode or not answers:
            raise RuntimeError((err.splitlines() or [f"it ended with status {self.process.returncode}"])[-1])
        answer: dict[str, Any] = json.loads(answers[0])
        return answer


@contextmanager
def under_way() -> Iterator[RoundTrip]:
    """Start a round trip, and remove at the end what it has left."""
    with ExitStack() as stack:
        folder, refused = None, None
        try:
            from trackio.utils import TRACKIO_DIR

            folder = TRACKIO_DIR.absolute()
            place = stack.enter_context(_folder_within(folder))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the user is told
            refused = error
        process: subprocess.Popen[str] | OSError
        try:
            if refused is not None:
                place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            process = stack.enter_context(_start(place))
            stack.callback(process.kill)
        except OSError as error:
            process = error
        yield RoundTrip(folder, refused, process)


@contextmanager
def _folder_within(folder: Path) -> Iterator[Path]:
    """A new folder, that can be written to, within one that may be missing; nothing is left of either."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=".torchrl-trackio-doctor-", dir=folder, ignore_cleanup_errors=True
        ) as name:
            probe = Path(name, "probe")
            probe.write_bytes(bytes(4096))
            probe.unlink()
            yield Path(name)
    finally:
        for path in missing:
            with suppress(OSError):  # somebody else has begun to use it
                path.rmdir()


def _start(place: Path) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name not in _REMOTE}
    environment.update(TRACKIO_DIR=str(place), HF_HUB_OFFLINE="1")
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", _CODE], env=environment, stdout=pipe, stderr=pipe, text=True)  # noqa: S603


def main(get_logger: Callable[..., Any]) -> None:
    """Print as JSON what ``get_logger("trackio")`` does, what went wrong in the round trip, and its seconds."""
    with redirect_stdout(sys.stderr), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        does = _what_it_does(get_logger)
        start = time.perf_counter()
        problem = _problem()
        seconds = time.perf_counter() - start
    reasons = dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, UserWarning))
    problem = "; ".join([problem, *reasons]) if problem else ""
    sys.stdout.write(json.dumps({"get_logger": does, "problem": problem, "seconds": seconds}) + "\n")


def _what_it_does(get_logger: Callable[..., Any]) -> str:
    try:
        logger = get_logger("trackio", "", "get-logger", trackio_kwargs={"project": _PROJECT})
    except Exception as error:  # noqa: BLE001 - a rival's, perhaps
        return f"raises {said(error)}"
    with suppress(Exception):
        logger.experiment.finish()
    return f"builds {type(logger).__module__}.{type(logger).__qualname__}"


def _problem() -> str:
    try:
        _write()
        found = _read()
    except Exception as error:  # noqa: BLE001 - whatever it is, the user is told
        return said(error)
    return "" if found == _LOGGED else f"logged {_LOGGED}, read back {found}"


def _write() -> None:
    import torch

    from torchrl_trackio import TrackioLogger

    with TrackioLogger(_RUN, _PROJECT, auto_log_gpu=False, auto_log_cpu=False) as logger:
        logger.log_hparams({"optim": {"lr": 0.1}})
        logger.log_metrics({"train/loss": torch.tensor(0.5)}, step=_STEP)
        logger.log_video("eval/video", moving_bar(_FRAMES), step=_STEP)


def _read() -> dict[str, Any]:
    from trackio import fragments
    from trackio.sqlite_storage import SQLiteStorage
    from trackio.utils import MEDIA_DIR

    fragments.import_inbox_dir()
    rows = SQLiteStorage.get_logs(_PROJECT, _RUN)
    videos = [(row["step"], MEDIA_DIR / row["eval/video"]["file_path"]) for row in rows if "eval/video" in row]
    return {
        "train/loss": [(row["step"], row["train/loss"]) for row in rows if "train/loss" in row],
        "optim/lr": (SQLiteStorage.get_run_config(_PROJECT, _RUN) or {}).get("optim/lr"),
        "eval/video": [(step, frames_of(path)) for step, path in videos],
    }


def moving_bar(count: int) -> Any:
    """Frames ``(T, C, H, W)``, uint8, no two of them alike."""
    import torch

    video = torch.zeros(count, 3, 32, 32, dtype=torch.uint8)
    for index in range(count):
        video[index, :, :, 4 * index : 4 * index + 4] = 255
    return video


def frames_of(path: Path) -> int:
    """How many frames of a video can be decoded."""
    import av

    with av.open(str(path)) as file:
        return sum(1 for _ in file.decode(video=0))
