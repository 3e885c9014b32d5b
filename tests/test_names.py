"""Names of metrics, runs and projects: kept where Trackio can, changed with a warning or refused where it cannot."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from reading import folder, media, rows
from torchrl_trackio import TrackioLogger, TrackioWarning, names

RESERVED = [
    *("project", "run", "timestamp", "step", "time", "metrics"),  # Trackio's own
    *("run_id", "series_key", "data_type", "x_axis"),  # the dashboard's
]
STORED_AS = {
    **{name: f"{name}_" for name in RESERVED},
    "__x": "x_",
    "___x": "x_",
    "__x__": "x___",
    "__a/b": "a/b_",
    "__": "_",
}


@pytest.fixture(autouse=True)
def _unwarned() -> Iterator[None]:
    """Each test sees the names as a new process does: it warns once for each."""
    names._drawable.cache_clear()
    yield
    names._drawable.cache_clear()


def warned_of(name: str, stored: str) -> str:
    """The one warning's text."""
    return f"Trackio keeps the name {name!r} for itself: the metric is stored as {stored!r}"


@pytest.mark.parametrize(("name", "stored"), STORED_AS.items(), ids=[name.replace("/", "|") for name in STORED_AS])
def test_a_reserved_name_is_stored_with_an_underscore(
    logger: TrackioLogger, project: str, name: str, stored: str
) -> None:
    """Every call stores such a metric under a name that is drawn; the first of all warns, at the caller's line."""
    with pytest.warns(TrackioWarning) as caught:
        logger.log_scalar(name, 1.0, step=0)
    for step in (1, 2):  # where a second warning would be an error
        logger.log_scalar(name, 1.0, step=step)
        logger.log_metrics({name: 2.0, "x": 3.0}, step=step + 10)
    logger.log_histogram(name, [1.0], step=20, bins=[0, 2])
    logger.flush()
    assert [(str(one.message), one.filename) for one in caught] == [(warned_of(name, stored), __file__)]
    histogram = {"_type": "trackio.histogram", "bins": [0, 2], "values": [1]}
    assert sorted(rows(project), key=lambda row: row[0]) == [
        *((step, {stored: 1.0}) for step in range(3)),
        *((step + 10, {stored: 2.0, "x": 3.0}) for step in (1, 2)),
        (20, {stored: histogram}),
    ]


def test_each_reserved_name_warns_once_in_all(project: str) -> None:
    """Two loggers, all kinds of calls: as many warnings as names."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for run in ("first", "second"):
            with TrackioLogger(run, project) as logger:
                for _ in range(2):
                    logger.log_metrics(dict.fromkeys(RESERVED, 1.0))
                    logger.log_str("step", "text")
                    logger.experiment.log({"time": 1.0})
    assert [str(one.message) for one in caught] == [warned_of(name, f"{name}_") for name in RESERVED]


def test_a_warning_made_an_error_loses_no_neighbour(logger: TrackioLogger, project: str) -> None:
    """With -W error, as here, a reserved name raises, and the call's other values are stored."""
    with pytest.raises(TrackioWarning, match=r"^'step': Trackio keeps the name 'step' for itself"):
        logger.log_metrics({"before": 1.0, "step": 2.0, "after": 3.0}, step=0)
    logger.flush()
    assert rows(project) == [(0, {"before": 1.0, "after": 3.0})]


KEPT = [
    *("loss", "train/loss", "a/b/c", "train.loss", "with space", "ünïcödé", "损失", "🙂", "_x", "x__", "Step", "steps"),
    *("train/step", "", "/", "a//b", "a\nb", "a\0b", "x" * 1000, "'; DROP TABLE metrics; --"),
]


def test_every_other_name_is_kept(logger: TrackioLogger, project: str) -> None:
    """No name is changed that Trackio stores and draws."""
    for name in KEPT:
        logger.log_scalar(name, 1.0, step=0)
    logger.log_metrics(dict.fromkeys(KEPT, 2.0), step=1)
    logger.flush()
    assert rows(project) == [(0, dict.fromkeys(KEPT, 1.0)), (1, dict.fromkeys(KEPT, 2.0))]


COLLIDING = {
    "reserved": ({"time": 1.0, "time_": 2.0, "x": 3.0}, {"time_": 1.0, "x": 3.0}, "'time_'", "time_"),
    "tuple": ({("a", "b"): 1.0, "a/b": 2.0, "x": 3.0}, {"a/b": 1.0, "x": 3.0}, "'a/b'", "a/b"),
    "nested": ({"a": {"b": 1.0}, "a/b": 2.0, "x": 3.0}, {"a/b": 1.0, "x": 3.0}, "('a/b',)", "a/b"),
    "numbered": ({"a": {1: 1.0, "1": 2.0}, "x": 3.0}, {"a/1": 1.0, "x": 3.0}, "('a', '1')", "a/1"),
}


@pytest.mark.parametrize(("metrics", "stored", "key", "name"), COLLIDING.values(), ids=COLLIDING)
@pytest.mark.filterwarnings("ignore::torchrl_trackio.TrackioWarning")
def test_two_metrics_of_one_name_are_refused(
    logger: TrackioLogger, project: str, metrics: dict[Any, Any], stored: dict[str, float], key: str, name: str
) -> None:
    """Where two of one call would be stored under one name, the second is refused and nothing else is lost."""
    message = f"{key}: two metrics of one call would both be stored as {name!r}: rename one of them"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        logger.log_metrics(metrics, step=0)
    logger.flush()
    assert rows(project) == [(0, stored)]


@pytest.mark.filterwarnings("ignore::torchrl_trackio.TrackioWarning")
def test_colliding_names_of_two_calls_are_both_stored(logger: TrackioLogger, project: str) -> None:
    """As any name that comes twice for a step: in two rows."""
    logger.log_scalar("time", 1.0, step=0)
    logger.log_scalar("time_", 2.0, step=0)
    logger.flush()
    assert rows(project) == [(0, {"time_": 1.0}), (0, {"time_": 2.0})]


BAD_NAMES: dict[str, tuple[Any, type[Exception], str]] = {
    "int": (1, TypeError, "a metric's name must be a string or a tuple of strings, got 1 (int)"),
    "None": (None, TypeError, "a metric's name must be a string or a tuple of strings, got None (NoneType)"),
    "bytes": (b"a", TypeError, "a metric's name must be a string or a tuple of strings, got b'a' (bytes)"),
    "empty tuple": ((), TypeError, "a metric's name must be a string or a tuple of strings, got () (tuple)"),
    "mixed tuple": (
        ("a", 1),
        TypeError,
        "a metric's name must be a string or a tuple of strings, got ('a', 1) (tuple)",
    ),
    "surrogate": (
        "a\ud800",
        ValueError,
        "a metric's name must be valid Unicode, got 'a\\ud800': 'utf-8' codec can't encode character '\\ud800' in "
        "position 1: surrogates not allowed",
    ),
}
CALLS = {
    "log_scalar": lambda logger, name: logger.log_scalar(name, 1.0, step=0),
    "log_histogram": lambda logger, name: logger.log_histogram(name, [1.0], step=0),
    "log_str": lambda logger, name: logger.log_str(name, "text", step=0),
    "log_video": lambda logger, name: logger.log_video(name, torch.zeros(1, 3, 2, 2), step=0),
    "log_metrics": lambda logger, name: logger.log_metrics({name: 1.0, "beside": 2.0}, step=0),
    "experiment.log": lambda logger, name: logger.experiment.log({name: 1.0, "beside": 2.0}, step=0),
}


@pytest.mark.parametrize(("name", "error", "message"), BAD_NAMES.values(), ids=BAD_NAMES)
def test_a_name_that_cannot_be_stored_is_refused(
    logger: TrackioLogger, project: str, name: Any, error: type[Exception], message: str
) -> None:
    """Every call refuses it at once, and loses neither its own other values nor those of the step."""
    logger.log_scalar("x", 1.0, step=0)
    for call, log in CALLS.items():
        of_many = f"{name!r}: " if call in ("log_metrics", "experiment.log") else ""
        with pytest.raises(error, match=f"^{re.escape(of_many + message)}$"):
            log(logger, name)
    logger.flush()
    assert rows(project) == [(0, {"x": 1.0, "beside": 2.0}), (0, {"beside": 2.0})]


def test_a_tuple_is_a_name_in_every_call(logger: TrackioLogger, project: str) -> None:
    """The nested keys of torchrl are names joined by slashes."""
    logger.log_scalar(("agents", "reward"), 1.0, step=0)
    logger.log_str(("agents", "note"), "x", step=0)
    logger.log_histogram(("agents", "actions"), [1.0], step=0, bins=[0, 2])
    logger.flush()
    assert rows(project) == [
        (
            0,
            {
                "agents/reward": 1.0,
                "agents/note": {"_type": "trackio.markdown", "_value": "x"},
                "agents/actions": {"_type": "trackio.histogram", "bins": [0, 2], "values": [1]},
            },
        )
    ]


RUN_NAMES = [
    *(
        "run",
        "sac/cheetah/seed0",
        "a b:c*?",
        "q\"'`",
        "ünï/日本",
        "🙂",
        ".",
        "..a",
        "a..b",
        "...",
        "a/./b",
        "trailing/",
    ),
    *("a\\b", "line\nbreak", "%2e%2e", "x" * 200, "日" * 80, "-", "~", "a//b", "CON", "C:\\x"),
]


@pytest.mark.parametrize("name", RUN_NAMES, ids=[repr(name).replace("/", "|")[:20] for name in RUN_NAMES])
def test_a_run_keeps_its_name_and_its_media_stay_inside(project: str, name: str) -> None:
    """Rows and media are stored under the name, below the project's media folder, and can be read back."""
    with TrackioLogger(name, project) as logger:
        logger.log_video("video", torch.zeros(2, 3, 4, 4, dtype=torch.uint8), step=7)
        logger.log_metrics({"x": 1.0, "h": np.array([0.0, 1.0])}, step=7)
        assert (logger.exp_name, logger.experiment.name) == (name, name)
    ((step, path),) = media(project, "video", name)
    assert step == 7
    assert path.stat().st_size > 0
    assert path.resolve().is_relative_to((folder() / "media" / project).resolve())
    assert [(step, set(row)) for step, row in rows(project, name)] in (
        [(7, {"x", "h"}), (7, {"video"})],
        [(7, {"video"}), (7, {"x", "h"})],
    )


BAD_RUN_NAMES = {
    "parent": "..",
    "climbing": "../../escape",
    "climbing inside": "a/../../b",
    "climbing backwards": "..\\..\\escape",
    "absolute": "/tmp/escape",
    "absolute backwards": "\\escape",
    "NUL": "a\0b",
    "too long": "x" * 201,
    "too long in all": "a/" * 101,
    "too many bytes": "日" * 81,
    "empty": "",
    "blank": " \t",
}


@pytest.mark.parametrize("name", BAD_RUN_NAMES.values(), ids=BAD_RUN_NAMES)
def test_a_run_name_that_leaves_the_folder_is_refused(project: str, name: str) -> None:
    """The constructor raises, says why, and leaves no run behind."""
    message = (
        "exp_name must have 1 to 200 characters (at most 240 bytes between slashes) and be neither an absolute path "
        f"nor hold '..' or a NUL, since Trackio stores media in a folder of that name; got {name!r}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        TrackioLogger(name, project)
    assert not (folder() / f"{project}.db").exists()


@pytest.mark.parametrize("name", [None, 1, b"run", ["run"]], ids=["None", "int", "bytes", "list"])
def test_a_run_name_is_a_string(project: str, name: Any) -> None:
    """Trackio would store the rows of a run named 1 and drop its media."""
    message = f"exp_name must be a string, got {name!r} ({type(name).__name__})"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        TrackioLogger(name, project)


def test_a_run_name_is_valid_unicode(project: str) -> None:
    """Lone surrogates can be stored nowhere."""
    with pytest.raises(ValueError, match=r"^exp_name must be valid Unicode, got 'a\\ud800': 'utf-8' codec"):
        TrackioLogger("a\ud800", project)


PROJECTS = {
    "slash": ("names/slash", "names-slash"),
    "space": ("names space", "names-space"),
    "dot": ("names.dot", "names-dot"),
    "several": ("names: a.b", "names-a-b"),
    "ends": (" names/ends/", "names-ends"),
    "parents": ("../../names", "names"),
    "absolute": ("/names/absolute", "names-absolute"),
    "surrogate": ("names\ud800surrogate", "names-surrogate"),
}


@pytest.mark.parametrize(("given", "kept"), PROJECTS.values(), ids=PROJECTS)
def test_a_project_that_trackio_would_fold_is_normalised(given: str, kept: str) -> None:
    """What Trackio drops from the name of a project's file becomes a dash, with one warning at the caller's line."""
    with pytest.warns(TrackioWarning) as caught:
        logger = TrackioLogger("run", given)
    with logger:
        logger.log_scalar("x", 1.0, step=0)
        assert logger.experiment.project == kept
    message = f"Trackio stores projects under letters, digits, '-' and '_' only: {given!r} is logged to {kept!r}"
    assert [(str(one.message), one.filename) for one in caught] == [(message, __file__)]
    assert rows(kept) == [(0, {"x": 1.0})]


def test_projects_that_trackio_folds_together_are_kept_apart() -> None:
    """``a/b``, which Trackio would store in the file of ``ab``, has a file of its own."""
    for number, name in enumerate(("namesab", "names_ab", "names-ab", "NamesAB")):
        with TrackioLogger("run", name) as logger:
            logger.log_scalar("x", number, step=0)
    with pytest.warns(TrackioWarning):
        logger = TrackioLogger("run", "names/ab/c")
    with logger:
        logger.log_scalar("x", 4, step=0)
    found = [rows(name) for name in ("namesab", "names_ab", "names-ab", "NamesAB", "names-ab-c")]
    assert found == [[(0, {"x": number})] for number in range(5)]


@pytest.mark.parametrize("name", ["names_ünï", "日本", "x" * 200], ids=["accents", "characters", "long"])
def test_letters_of_every_script_make_a_project(name: str) -> None:
    """They are kept without a warning."""
    with TrackioLogger("run", name) as logger:
        logger.log_scalar("x", 1.0, step=0)
    assert rows(name) == [(0, {"x": 1.0})]


@pytest.mark.parametrize("name", ["", " ", "..", "///", "---", "x" * 201, "日" * 81])
def test_a_project_of_no_or_too_many_letters_is_refused(name: str) -> None:
    """Trackio would store them all in one project named ``default``, or fail to make a file."""
    message = f"project must have 1 to 200 letters, digits, '-' or '_' (at most 240 bytes); got {name!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        TrackioLogger("run", name)


@pytest.mark.parametrize("name", [None, 1, b"p"], ids=["None", "int", "bytes"])
def test_a_project_is_a_string(name: Any) -> None:
    """Anything else is refused at the call."""
    message = f"project must be a string, got {name!r} ({type(name).__name__})"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        TrackioLogger("run", name)


@pytest.mark.parametrize("name", ["registry-a", "a_system", "a_configs"])
def test_trackios_own_project_names_are_refused(name: str) -> None:
    """Names of Trackio's own tables and registries are a ValueError of Trackio's, which names them."""
    with pytest.raises(ValueError, match=name):
        TrackioLogger("run", name)
