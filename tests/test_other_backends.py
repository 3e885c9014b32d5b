"""Any package can offer a logger; and the patch that ``docs/`` holds makes torchrl find it without a bridge."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torchrl

from test_discovery import MINE, offer, tell

DOCS = Path(__file__).parents[1] / "docs"
PATCHED = "0.14.1"  # whose source the patch is made for
OURS = "torchrl_trackio.logger.TrackioLogger"


def page_block(language: str) -> str:
    """The first block of a language on the page."""
    return re.search(rf"^```{language}\n(.*?)^```", (DOCS / "other-backends.md").read_text(), re.M | re.S)[1]


@pytest.fixture(scope="module")
def on_the_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the distribution that the page makes."""
    group, name, value, module = re.fullmatch(
        r'\[project\.entry-points\."([\w.]+)"\]\n(\w+) = "((\w+):\w+)"\n', page_block("toml")
    ).groups()
    assert group == "torchrl.loggers"
    return offer(tmp_path_factory.mktemp("page"), "page-plugin", {name: value}, **{module: page_block("python")})


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the installed torchrl with the patch applied, and another plugin, ``mine``."""
    folder = tmp_path_factory.mktemp("patched")
    for name in ("common.py", "utils.py"):
        source = Path(torchrl.__file__).parent / "record" / "loggers" / name
        (folder / "check" / "torchrl" / "record" / "loggers").mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / "check" / "torchrl" / "record" / "loggers")
    refused = apply_patch(folder / "check", "--check").stderr
    if refused and version("torchrl") != PATCHED:
        pytest.skip(f"the patch is for torchrl {PATCHED}, and that of {version('torchrl')} is another get_logger")
    assert refused == ""
    shutil.copytree(Path(torchrl.__file__).parent, folder / "torchrl")
    assert apply_patch(folder).returncode == 0
    return offer(folder, "mine-plugin", {"mine": "mine_logger:Mine"}, mine_logger=MINE)


def apply_patch(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Apply the patch to what lies in a folder, though that be in a repository."""
    return subprocess.run(
        ["git", "apply", *options, DOCS / "torchrl.patch"],
        cwd=folder,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_plugin_on_the_page_works(on_the_page: Path, tmp_path: Path) -> None:
    """The page's pyproject lines and class are a whole back-end: built by name, logged to, and stored."""
    code = f"""
        from pathlib import Path
        from torchrl.record.loggers import get_logger
        logger = get_logger("jsonlines", "", "run-0", jsonlines_kwargs={{"folder": {str(tmp_path)!r}}})
        logger.log_hparams({{"lr": 0.5}})
        logger.log_scalar("reward", 2, step=3)
        logger.flush()
        tell([type(logger).__name__, [json.loads(line) for line in open(logger.experiment.name)]])
    """
    assert tell(code, on_the_page) == [
        "JsonLinesLogger",
        [{"hparams": {"lr": 0.5}}, {"name": "reward", "value": 2.0, "step": 3}],
    ]


@pytest.fixture(scope="module", params=["0", "1"], ids=["PyTorch's autoload off", "autoload on"])
def told(request: pytest.FixtureRequest, patched: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a fresh interpreter with the patched torchrl tells."""
    folder = tmp_path_factory.mktemp("logs")
    code = f"""
        import torchrl
        from torchrl.record.loggers import get_logger, utils

        def classes(*loggers):
            return [f"{{type(logger).__module__}}.{{type(logger).__name__}}" for logger in loggers]

        told = {{
            "patched": [torchrl.__file__, torchrl.__version__],
            "imported": [name for name in ("torchrl_trackio.logger", "trackio", "mine_logger") if name in sys.modules],
            "ours imported": "torchrl_trackio" in sys.modules,
            "function": [get_logger.__module__, hasattr(get_logger, "__wrapped__"), get_logger is utils.get_logger],
        }}
        options = {{"nested": {{"a": 1}}}}
        mine = get_logger("mine", "ignored", "run", mine_kwargs=options)
        trackio = get_logger("trackio", "ignored", "run", trackio_kwargs={{"project": "p", "group": "g"}})
        csv = get_logger("csv", {str(folder)!r}, "run")
        told["classes"] = classes(mine, trackio, csv)
        told["mine"] = [mine.exp_name, mine.options, options]
        told["run"] = [trackio.exp_name, trackio.experiment.project, trackio.experiment.group]
        told["none"] = [get_logger(name, "", "run") for name in ("", None)]
        try:
            get_logger("other", "", "run")
        except NotImplementedError as error:
            told["unknown"] = str(error)

        trackio.log_scalar("x", 0.0, step=5)
        saved = trackio.state_dict()
        trackio.shutdown()
        again = get_logger("trackio", "", "other", state_dict=saved, trackio_kwargs={{"project": "p"}})
        again.log_scalar("x", 1.0)
        told["resumed"] = [again.experiment.id == saved["local"]["id"], again.state_dict()["local"]["last_steps"]]
        mine_again = get_logger("mine", "", "run", state_dict={{"exp_name": "saved", "log_dir": None}})
        told["mine resumed"] = [mine_again.exp_name, mine_again.loaded]
        told["service"] = get_logger("mine", "", "run", service_backend="process", service_backend_options={{"a": 1}})
        told["still"] = [get_logger is utils.get_logger, hasattr(utils.get_logger, "__wrapped__")]
        tell(told)
    """
    environment = {"TORCH_DEVICE_BACKEND_AUTOLOAD": request.param, "TRACKIO_DIR": str(folder)}
    told: dict[str, Any] = tell(code, patched, **environment)
    assert told.pop("patched") == [str(patched / "torchrl" / "__init__.py"), torchrl.__version__]
    assert told.pop("ours imported") == (request.param == "1")
    return told


TOLD = {
    "imported": [],
    "function": ["torchrl.record.loggers.utils", False, True],
    "classes": ["mine_logger.Mine", OURS, "torchrl.record.loggers.csv.CSVLogger"],
    "mine": ["run", {"nested": {"a": 1}}, {"nested": {"a": 1}}],
    "run": ["run", "p", "g"],
    "none": [None, None],
    "unknown": "Unsupported logger_type: 'other'",
    "resumed": [True, {"x": 6}],
    "mine resumed": ["saved", {"exp_name": "saved", "log_dir": None}],
    "service": ["process", {"service_backend_options": {"a": 1}, "exp_name": "run"}],
    "still": [True, False],
}


@pytest.mark.parametrize(("what", "expected"), TOLD.items(), ids=TOLD)
def test_a_patched_torchrl_needs_no_bridge(what: str, expected: Any, told: dict[str, Any]) -> None:
    """It finds every plugin and treats them as its own loggers; our bridge leaves its function alone."""
    assert told[what] == expected


def test_of_two_plugins_with_one_name_the_patch_takes_the_one_that_the_bridge_takes(
    patched: Path, tmp_path: Path
) -> None:
    """The first in the alphabet, whatever the order on the path."""
    names = ["rival-b", "rival-a"]
    folders = [offer(tmp_path / name, name, {"contested": f"{name[-1]}:Mine"}, **{name[-1]: MINE}) for name in names]
    code = """
        from torchrl.record.loggers import get_logger
        tell(type(get_logger("contested", "", "run")).__module__)
    """
    assert [tell(code, patched, *order) for order in (folders, folders[::-1])] == ["a", "a"]
