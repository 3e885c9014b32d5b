"""torchrl finds logger plugins by itself, and none of them, nor the bridge, can break its import."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import pickle
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest
import torchrl
from torchrl.record.loggers import Logger, get_logger

import torchrl_trackio
from torchrl_trackio import TrackioWarning, _autoload
from torchrl_trackio.discovery import LoggerPlugin, available_loggers, load_logger

OURS = LoggerPlugin("trackio", "torchrl_trackio:TrackioLogger", "torchrl-trackio", torchrl_trackio.__version__)
LISTED = f"the logger plugins are 'mine' (mine-plugin 1.0), 'trackio' (torchrl-trackio {torchrl_trackio.__version__})"
HAS_BACKENDS = "service_backend" in inspect.signature(get_logger).parameters
newest_torchrl = pytest.mark.skipif(not HAS_BACKENDS, reason="torchrl < 0.14 has no service backends")

MINE = """
    from torchrl.record.loggers import Logger

    class Mine(Logger):
        def __init__(self, exp_name, **options):
            self.options, self.loaded = options, None
            super().__init__(exp_name, log_dir="")

        def _create_experiment(self): ...
        def __repr__(self): ...
        def log_scalar(self, name, value, step=None): ...
        def log_video(self, name, video, step=None, **kwargs): ...
        def log_hparams(self, cfg): ...
        def log_histogram(self, name, data, **kwargs): ...

        def load_state_dict(self, state_dict):
            self.loaded = state_dict

    Mine._ServiceClass = staticmethod(lambda backend, **options: (backend, options))
"""


def offer(folder: Path, distribution: str, entries: dict[str, str], **modules: str) -> Path:
    """Install a distribution, version 1.0, with logger plugins into a folder, as pip would."""
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
    (info / "entry_points.txt").write_text(f"[torchrl.loggers]\n{lines}")
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(source))
    return folder


def tell(code: str, *folders: Path, **env: str) -> Any:
    """What ``code`` tells in a fresh interpreter whose warnings are errors, with folders put on its path."""
    done = run(code, *folders, options=("-W", "error::UserWarning"), **env)
    assert done.returncode == 0, done.stderr
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("TOLD "))[5:])


def run(code: str, *folders: Path, options: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``code``, which may ``tell`` a value, in a fresh interpreter."""
    code = "import json, sys\ndef tell(value): print('TOLD ' + json.dumps(value))\n" + textwrap.dedent(code)
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": path, **env}
    return subprocess.run(
        [sys.executable, *options, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="session")
def mine_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the distribution mine-plugin, which offers the logger ``mine``."""
    return offer(tmp_path_factory.mktemp("mine"), "mine-plugin", {"mine": "mine_logger:Mine"}, mine_logger=MINE)


@pytest.fixture
def mine(mine_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, installed here."""
    monkeypatch.syspath_prepend(mine_folder)
    return mine_folder


# The group


def test_listing_imports_no_plugin(mine_folder: Path) -> None:
    """Names, values, distributions and versions are known without importing torch, trackio or a plugin."""
    code = """
        from torchrl_trackio.discovery import available_loggers
        told = [[p.name, p.value, p.distribution, p.version] for p in available_loggers().values()]
        tell([told, [name for name in ("torch", "trackio", "mine_logger") if name in sys.modules]])
    """
    theirs = ["mine", "mine_logger:Mine", "mine-plugin", "1.0"]
    assert tell(code, mine_folder) == [[theirs, [OURS.name, OURS.value, OURS.distribution, OURS.version]], []]


@pytest.mark.parametrize(
    ("switch", "names"),
    [
        pytest.param(None, ["mine", "trackio"], id="unset: all"),
        pytest.param("", [], id="empty: none"),
        pytest.param("mine", ["mine"], id="one"),
        pytest.param(" trackio ,mine,other", ["mine", "trackio"], id="spaces and unknown names"),
    ],
)
@pytest.mark.usefixtures("mine")
def test_the_switch_lists_the_allowed_names(
    switch: str | None, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``TORCHRL_LOGGER_PLUGINS`` is read at each call."""
    if switch is not None:
        monkeypatch.setenv("TORCHRL_LOGGER_PLUGINS", switch)
    assert list(available_loggers()) == names


@pytest.mark.parametrize("first", ["a_rival", "B-rival"], ids=["a first on the path", "b first on the path"])
def test_of_two_distributions_with_one_name_the_first_in_the_alphabet_wins(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order on the path, the choice is the same, and warned about once, naming both."""
    name = f"contested-{first}"
    for distribution in sorted(["a_rival", "B-rival"], key=lambda each: each == first):
        monkeypatch.syspath_prepend(offer(tmp_path / distribution, distribution, {name: "mine_logger:Mine"}))
    with pytest.warns(TrackioWarning) as warned:
        assert [available_loggers()[name] for _ in range(2)] == 2 * [
            LoggerPlugin(name, "mine_logger:Mine", "a_rival", "1.0")
        ]
    assert [str(each.message) for each in warned] == [
        f"the logger plugin {name!r} is offered by a_rival 1.0 and by B-rival 1.0: that of a_rival 1.0, first in the "
        "alphabet, is taken. To choose another, uninstall it."
    ]
    assert warned[0].filename == __file__


@pytest.mark.parametrize(
    ("value", "kind", "problem"),
    [
        pytest.param(
            "no_such_module:Bad",
            ImportError,
            "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'",
            id="module missing",
        ),
        pytest.param(
            "bad_logger:Missing",
            ImportError,
            "cannot be imported: AttributeError: module 'bad_logger' has no attribute 'Missing'",
            id="class missing",
        ),
        pytest.param(
            "raising_logger:Bad",
            ImportError,
            "cannot be imported: RuntimeError: no GPU here",
            id="module raises",
        ),
        pytest.param(
            "bad_logger:Bad",
            TypeError,
            "must be a subclass of torchrl.record.loggers.Logger, got <class 'bad_logger.Bad'>",
            id="another class",
        ),
        pytest.param(
            "bad_logger:number",
            TypeError,
            "must be a subclass of torchrl.record.loggers.Logger, got 1",
            id="no class",
        ),
    ],
)
@pytest.mark.usefixtures("mine")
def test_a_plugin_that_does_not_load_says_why_and_how_to_do_without_it(
    value: str, kind: type[Exception], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names entry point, distribution, version, cause and off-switch; no other plugin minds."""
    sources = {"bad_logger": "class Bad: ...\nnumber = 1", "raising_logger": "raise RuntimeError('no GPU here')"}
    monkeypatch.syspath_prepend(offer(tmp_path, "bad-plugin", {"bad": value}, **sources))
    with pytest.raises(kind) as raised:
        get_logger("bad", "ignored", "run")
    assert str(raised.value) == (
        f"the logger plugin 'bad' (bad-plugin 1.0), entry point {value!r} of the group 'torchrl.loggers', {problem}. "
        "To do without it, set TORCHRL_LOGGER_PLUGINS='mine,trackio' in the environment."
    )
    assert issubclass(load_logger("mine"), Logger)


@pytest.mark.usefixtures("mine")
def test_an_unknown_name_lists_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """``load_logger`` and torchrl's own "unsupported" error name what is installed, and the switch where it is set."""
    with pytest.raises(ValueError, match=r"^no logger plugin is named 'other'") as raised:
        load_logger("other")
    assert str(raised.value) == f"no logger plugin is named 'other': {LISTED}"
    with pytest.raises(NotImplementedError) as unsupported:
        get_logger("other", "ignored", "run")
    assert str(unsupported.value) == f"Unsupported logger_type: 'other' by torchrl itself; {LISTED}"
    monkeypatch.setenv("TORCHRL_LOGGER_PLUGINS", "")
    with pytest.raises(NotImplementedError) as unsupported:
        get_logger("mine", "ignored", "run")
    assert str(unsupported.value) == (
        "Unsupported logger_type: 'mine' by torchrl itself; the logger plugins are none; TORCHRL_LOGGER_PLUGINS='' "
        "allows no others"
    )


@pytest.mark.parametrize("metadata", ["", None], ids=["empty", "missing"])
def test_a_distribution_without_metadata_breaks_nothing(
    metadata: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a half-finished uninstall leaves behind is listed, and torchrl's own loggers still come."""
    offer(tmp_path, "half-plugin", {"half": "half:Half"})
    info = tmp_path / "half_plugin-1.0.dist-info" / "METADATA"
    info.unlink() if metadata is None else info.write_text(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    assert available_loggers()["half"] == LoggerPlugin("half", "half:Half", "?", "?")
    assert get_logger("csv", str(tmp_path), "run").exp_name == "run"


# get_logger


@pytest.mark.usefixtures("mine")
def test_get_logger_serves_any_plugin_and_keeps_the_callers_dict() -> None:
    """``get_logger("mine", ..., mine_kwargs=options)`` builds ``Mine(exp_name=..., **options)``."""
    options = {"project": "p", "nested": {"a": 1}}
    logger = get_logger("mine", logger_name="ignored", experiment_name="run", mine_kwargs=options, wandb_kwargs={})
    assert (type(logger), logger.exp_name) == (load_logger("mine"), "run")
    assert logger.options == options == {"project": "p", "nested": {"a": 1}}


@pytest.mark.usefixtures("mine")
def test_get_logger_restores_any_plugin_from_a_checkpoint() -> None:
    """``state_dict`` names the experiment and is loaded, on a torchrl without that parameter too."""
    saved = {"exp_name": "saved", "log_dir": None, "local": {"count": 3}}
    logger = get_logger("mine", "ignored", "run", state_dict=saved, mine_kwargs={"a": 1})
    assert (logger.exp_name, logger.options, logger.loaded) == ("saved", {"a": 1}, saved)


def test_get_logger_is_still_torchrls_function(tmp_path: Path) -> None:
    """Its name and signature are torchrl's, it can be pickled, and torchrl's own names work as before."""
    assert get_logger is torchrl.record.loggers.utils.get_logger
    assert (get_logger.__module__, get_logger.__name__) == ("torchrl.record.loggers.utils", "get_logger")
    assert list(inspect.signature(get_logger).parameters)[:3] == ["logger_type", "logger_name", "experiment_name"]
    assert pickle.loads(pickle.dumps(get_logger)) is get_logger
    assert get_logger("", "ignored", "run") is None
    assert get_logger(None, "ignored", "run") is None
    assert type(get_logger("csv", str(tmp_path), "run")) is torchrl.record.CSVLogger
    with pytest.raises(TypeError, match="experiment_name"):
        get_logger("trackio", "ignored")


@newest_torchrl
@pytest.mark.parametrize(
    ("given", "built"),
    [
        pytest.param(
            {"service_backend": "process", "service_backend_options": {"max_queue_size": 3}},
            ("process", {"max_queue_size": 3}),
            id="process",
        ),
        pytest.param(
            {"service_backend": "ray", "ray_actor_options": {"num_cpus": 1}},
            ("ray", {"actor_options": {"num_cpus": 1}}),
            id="ray, old options",
        ),
    ],
)
@pytest.mark.usefixtures("mine")
def test_service_options_reach_a_plugin_as_they_reach_torchrls_loggers(
    given: dict[str, Any], built: tuple[str, dict[str, Any]]
) -> None:
    """``service_backend`` and its options select the plugin's service; its own options go along."""
    backend, options = get_logger("mine", "ignored", "run", mine_kwargs={"a": 1}, **given)
    assert (backend, options) == (built[0], {"service_backend_options": built[1], "exp_name": "run", "a": 1})


@newest_torchrl
@pytest.mark.usefixtures("mine")
def test_the_deprecated_ray_flag_blames_its_caller() -> None:
    """``use_ray_service=True`` still selects Ray, and torchrl's warning about it points at the call."""
    with pytest.warns(FutureWarning, match=r"^use_ray_service is deprecated") as warned:
        backend, _ = get_logger("mine", "ignored", "run", use_ray_service=True)
    assert (backend, [each.filename for each in warned]) == ("ray", [__file__])
    with pytest.raises(ValueError, match="mutually exclusive"):
        get_logger("mine", "ignored", "run", ray_actor_options={"a": 1}, service_backend_options={"a": 1})


@pytest.mark.skipif(HAS_BACKENDS, reason="torchrl >= 0.14 has service backends")
@pytest.mark.usefixtures("mine")
def test_an_old_torchrl_lets_the_class_refuse_service_backends() -> None:
    """Before torchrl 0.14, ``service_backend="direct"`` means nothing and another one is not silently ignored."""
    assert get_logger("mine", "ignored", "run", service_backend="direct").options == {}
    with pytest.raises(TypeError, match="service_backend"):
        get_logger("trackio", "ignored", "run", service_backend="process")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ``get_logger("trackio", ...)`` built in a fresh interpreter, by the name of the case."""
    code = """
        from omegaconf import OmegaConf
        from torchrl.record.loggers import get_logger

        told = {}

        def build(case, exp_name="new", **kwargs):
            logger = get_logger("trackio", "ignored", exp_name, **kwargs)
            run = logger.experiment
            told[case] = [logger.exp_name, run.project, run.group, dict(run.config), ids.get(run.id, "new run")]
            return logger

        ids = {}
        node = {"optim": {"lr": 0.1}}
        wandb = {"project": "p", "group": "g", "config": {"cfg": OmegaConf.create(node)}, "mode": "online"}
        build("nothing")
        build("wandb_kwargs", wandb_kwargs=wandb)
        build("wandb_kwargs as DictConfig", wandb_kwargs=OmegaConf.create({**wandb, "resume": None, "id": None}))
        build("config as DictConfig", wandb_kwargs={"config": OmegaConf.create(node)})
        build("trackio_kwargs beside wandb_kwargs", trackio_kwargs={"project": "q"}, wandb_kwargs=wandb)
        build("empty trackio_kwargs beside wandb_kwargs", trackio_kwargs={}, wandb_kwargs=wandb)
        told["wandb_kwargs afterwards"] = repr(wandb)

        old = get_logger("trackio", "ignored", "old", trackio_kwargs={"project": "resumed"})
        ids[old.experiment.id] = "old run"
        old.log_scalar("x", 1.0, step=5)
        saved = old.state_dict()
        old.shutdown()
        for resume in ("allow", True, "auto", "must", "never", None, False):
            build(f"resume={resume!r}", "old", wandb_kwargs={"project": "resumed", "resume": resume})
            if resume == "must":
                wandb = {"project": "p", "group": "g", "resume": "must"}
                again = build("state_dict", state_dict=saved, wandb_kwargs=wandb)
                again.log_scalar("x", 2.0)
                told["state_dict continues"] = again.state_dict()["local"]["last_steps"]
                build("id", wandb_kwargs={"project": "resumed", "id": "old"})
                build("id, resume=False", wandb_kwargs={"project": "resumed", "id": "old", "resume": False})
        build("id of no run", wandb_kwargs={"project": "resumed", "id": "fresh"})
        build("id, resume='never'", wandb_kwargs={"project": "resumed", "id": "old", "resume": "never"})
        tell(told)
    """
    told: dict[str, Any] = tell(code, TRACKIO_DIR=str(tmp_path_factory.mktemp("trackio")))
    return told


CFG = {"optim": {"lr": 0.1}}
BUILT = {  # name, project, group, config, which run
    "nothing": ["new", "torchrl", None, {}, "new run"],
    "wandb_kwargs": ["new", "p", "g", {"cfg": CFG}, "new run"],
    "wandb_kwargs as DictConfig": ["new", "p", "g", {"cfg": CFG}, "new run"],
    "config as DictConfig": ["new", "torchrl", None, CFG, "new run"],
    "trackio_kwargs beside wandb_kwargs": ["new", "q", None, {}, "new run"],
    "empty trackio_kwargs beside wandb_kwargs": ["new", "torchrl", None, {}, "new run"],
    "resume='allow'": ["old", "resumed", None, {}, "old run"],
    "resume=True": ["old", "resumed", None, {}, "old run"],
    "resume='auto'": ["old", "resumed", None, {}, "old run"],
    "resume='must'": ["old", "resumed", None, {}, "old run"],
    "resume='never'": ["old", "resumed", None, {}, "new run"],
    "resume=None": ["old", "resumed", None, {}, "new run"],
    "resume=False": ["old", "resumed", None, {}, "new run"],
    "id": ["old", "resumed", None, {}, "old run"],
    "id, resume=False": ["old", "resumed", None, {}, "old run"],
    "id, resume='never'": ["old", "resumed", None, {}, "new run"],
    "id of no run": ["fresh", "resumed", None, {}, "new run"],
    "state_dict": ["old", "resumed", "g", {}, "old run"],
    "state_dict continues": {"x": 6},
}


@pytest.mark.parametrize(("case", "expected"), BUILT.items(), ids=BUILT)
def test_get_logger_means_for_trackio_what_it_means_for_wandb(case: str, expected: Any, built: dict[str, Any]) -> None:
    """Name, project, group, config and the run continued are those that torchrl's scripts give W&B."""
    told = built[case]
    if isinstance(told, list):
        told[3] = {key: value for key, value in told[3].items() if not key.startswith("_")}  # Trackio's own
    assert told == expected


def test_wandb_kwargs_are_left_as_they_were(built: dict[str, Any]) -> None:
    """A sweep may pass the same dict again."""
    assert built["wandb_kwargs afterwards"] == (
        "{'project': 'p', 'group': 'g', 'config': {'cfg': {'optim': {'lr': 0.1}}}, 'mode': 'online'}"
    )


# The bridge


def test_every_name_of_torchrl_leads_to_ours_with_no_import_of_this_package(mine_folder: Path, tmp_path: Path) -> None:
    """Importing torch and torchrl imports neither a plugin nor trackio; then all three ways give our class."""
    code = """
        import torch
        early = sorted(name for name in sys.modules if name.startswith(("torchrl", "trackio")))
        import torchrl.record, torchrl.trainers.algorithms.configs as configs
        from hydra.core.config_store import ConfigStore
        from hydra.utils import instantiate
        late = [name for name in ("trackio", "torchrl_trackio.logger", "mine_logger") if name in sys.modules]

        node = ConfigStore.instance().repo["logger"]["trackio.yaml"].node
        node.update(exp_name="hydra", project="p", trackio_kwargs={"group": "g", "config": {"optim": {"lr": 0.1}}})
        hydra = instantiate(node)
        classes = [torchrl.record.TrackioLogger, torchrl.record.loggers.TrackioLogger, type(hydra),
                   type(torchrl.record.loggers.get_logger("trackio", "ignored", "run"))]
        run = hydra.experiment
        try:
            from torchrl.record.loggers import trackio as builtin
        except ImportError:  # torchrl 0.10
            builtin = None
        tell({
            "early": early, "late": late, "classes": [f"{c.__module__}.{c.__name__}" for c in classes],
            "same": len(set(classes)) == 1, "config": hasattr(configs, "TrackioLoggerConfig"),
            "hydra": [run.name, run.project, run.group, hydra.video_fps, run.config["optim"]],
            "builtin": builtin is None or builtin.TrackioLogger.__module__ == builtin.__name__,
            "nonsense": [hasattr(torchrl.record, "nonsense"), hasattr(torchrl.record.loggers, "nonsense")],
        })
    """
    assert tell(code, mine_folder, TRACKIO_DIR=str(tmp_path)) == {
        "early": ["torchrl_trackio", "torchrl_trackio._autoload"],
        "late": [],
        "classes": 4 * ["torchrl_trackio.logger.TrackioLogger"],
        "same": True,
        "config": True,
        "hydra": ["hydra", "p", "g", 32, {"lr": 0.1}],
        "builtin": True,
        "nonsense": [False, False],
    }


def test_without_pytorchs_autoload_the_import_of_this_package_does_the_same(tmp_path: Path) -> None:
    """``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` and a torchrl imported before us make no difference, nor a second call."""
    code = """
        import torchrl.record, torchrl.trainers.algorithms.configs.logging as configs
        before = hasattr(torchrl.record, "TrackioLogger")
        import torchrl_trackio
        first = torchrl.record.loggers.get_logger
        from torchrl_trackio._autoload import register
        register()
        ours = torchrl.record.TrackioLogger
        made = configs._make_trackio_logger("hydra", "p")
        got = torchrl.record.loggers.get_logger("trackio", "ignored", "run")
        again = torchrl.record.loggers.get_logger is torchrl.record.loggers.utils.get_logger is first
        tell([before, ours is torchrl_trackio.TrackioLogger, type(made) is ours, type(got) is ours, again])
    """
    told = tell(code, TRACKIO_DIR=str(tmp_path), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert told == [False, True, True, True, True]


def test_switched_off_torchrl_does_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``TORCHRL_LOGGER_PLUGINS=""``, there is torchrl's own Trackio logger, or none, as before the install."""
    monkeypatch.setenv("TORCHRL_LOGGER_PLUGINS", "")
    with pytest.raises(ImportError, match=r"^cannot import name 'TrackioLogger' from 'torchrl\.record'"):
        from torchrl.record import TrackioLogger  # noqa: F401
    configs: Any = pytest.importorskip("torchrl.trainers.algorithms.configs.logging")
    # The built-in hands anything on to trackio.init, whose own complaint shows that it was asked.
    builtin = (TypeError, r"init\(\) got an unexpected keyword argument 'nonsense'")
    no_logger = (NotImplementedError, r"^Unsupported logger_type: 'trackio' by torchrl itself")
    no_node = (ValueError, r"^no logger plugin is named 'trackio'")
    has_logger = importlib.util.find_spec("torchrl.record.loggers.trackio") is not None  # torchrl >= 0.11
    error, message = builtin if has_logger else no_logger
    with pytest.raises(error, match=message):
        get_logger("trackio", "", "run", trackio_kwargs={"nonsense": 1})
    error, message = builtin if hasattr(configs, "TrackioLogger") else no_node  # torchrl >= 0.13
    with pytest.raises(error, match=message):
        configs._make_trackio_logger("run", "p", 30, {"nonsense": 1})


@pytest.mark.parametrize("options", [(), ("-W", "error")], ids=["warnings shown", "warnings are errors"])
def test_a_broken_wrapt_does_not_break_import_torch(options: tuple[str, ...], tmp_path: Path) -> None:
    """``import torch`` goes on, and one warning says what is missing and why."""
    (tmp_path / "wrapt.py").write_text("raise ImportError('this wrapt is broken')")
    done = run("import torch\ntell(torch.ones(2).tolist())", tmp_path, options=options)
    assert (done.stdout, done.returncode) == ("TOLD [1.0, 1.0]\n", 0), done.stderr
    reason = "TrackioWarning: torchrl will not find logger plugins by itself: ImportError: this wrapt is broken"
    assert [reason in line for line in done.stderr.splitlines() if "TrackioWarning" in line] == [True]


def test_a_torchrl_that_has_changed_beyond_recognition_can_still_be_imported() -> None:
    """Whatever fails in the bridge is one warning that names torchrl's module."""
    with pytest.warns(TrackioWarning) as warned:
        _autoload._bridge(types.ModuleType("torchrl.record"))
    assert [str(each.message) for each in warned] == [
        "torchrl.record will not find logger plugins by itself: AttributeError: module 'torchrl.record' has no "
        "attribute 'loggers'"
    ]


def a_later_torchrl(folder: Path, reads: str) -> Path:
    """A torchrl, reduced to what the bridge touches, that exports its own Trackio logger."""
    modules = {
        "torchrl/__init__.py": "",
        "torchrl/record/__init__.py": "from .loggers import TrackioLogger",
        "torchrl/record/loggers/__init__.py": "from .common import TrackioLogger\nfrom .utils import get_logger",
        "torchrl/record/loggers/common.py": "class Logger: ...\nclass TrackioLogger(Logger): ...",
        "torchrl/record/loggers/utils.py": f"def get_logger(logger_type, logger_name, experiment_name): {reads}",
    }
    for name, source in modules.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(source)
    return offer(
        folder,
        "a-plugin",
        {"trackio": "a_plugin:A"},
        a_plugin="from torchrl.record.loggers.common import Logger\nclass A(Logger): ...",
    )


@pytest.mark.parametrize(
    ("reads", "switch", "expected"),
    [
        pytest.param(
            "return 'builtin'", "trackio", ["A", "A", "get_logger", True], id="exports the built-in: ours wins"
        ),
        pytest.param(
            "return 'builtin'", "", ["TrackioLogger"] * 2 + ["get_logger", True], id="exports it, switched off"
        ),
        pytest.param(
            "return 'torchrl.loggers'", "trackio", ["TrackioLogger"] * 2 + ["get_logger", False], id="reads us"
        ),
    ],
)
def test_a_later_torchrl(reads: str, switch: str, expected: list[Any], tmp_path: Path) -> None:
    """The plugin goes before a built-in that is exported; of a torchrl that reads the group, nothing is touched."""
    code = """
        import warnings
        warnings.simplefilter("ignore")
        from torchrl_trackio._autoload import register
        register()
        import torchrl.record
        found = torchrl.record.loggers.get_logger
        tell([torchrl.record.TrackioLogger.__name__, torchrl.record.loggers.TrackioLogger.__name__,
              found.__name__, hasattr(found, "__wrapped__")])
    """
    assert tell(code, a_later_torchrl(tmp_path, reads), TORCHRL_LOGGER_PLUGINS=switch) == expected


@pytest.mark.parametrize(
    "misplaced", [{"project": "mine"}, {"trackio_kwarg": {"project": "mine"}}], ids=["option", "typo"]
)
def test_options_beside_the_loggers_own_dict_are_refused(misplaced: dict[str, Any]) -> None:
    """Torchrl ignores them, and the run would end in another project without a word."""
    from torchrl.record.loggers import get_logger

    with pytest.raises(TypeError, match=r"pass the logger's options in trackio_kwargs=\{...\}"):
        get_logger("trackio", "", "run", **misplaced)
