"""Hyperparameters survive: of every kind, at every time, as nested as they came and flat in the store."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import enum
import functools
import math
import re
import types
from collections import OrderedDict, namedtuple
from datetime import date
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
import torch
import trackio
from omegaconf import MISSING, OmegaConf
from tensordict import TensorDict

from reading import config, rows, run_ids
from torchrl_trackio import TrackioLogger


class Color(enum.Enum):
    """An enum with names for values."""

    RED = "red"


class Mode(enum.Enum):
    """An enum whose values say nothing."""

    FAST = object()


class Level(enum.IntEnum):
    """An enum of numbers."""

    HIGH = 3


@dataclasses.dataclass
class Optim:
    """A part of a configuration."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)


@dataclasses.dataclass
class Agent:
    """A configuration with a part."""

    optim: Optim = dataclasses.field(default_factory=Optim)
    activation: type = torch.nn.Tanh
    seed: int = MISSING


class Broken:
    """It cannot say what it is."""

    def __repr__(self) -> str:
        raise RuntimeError("on purpose")


Point = namedtuple("Point", "x y")


def a_function(x: float) -> float:
    """Stands for a schedule or a loss."""
    return x


def stored_entries(project: str) -> dict[str, Any]:
    """The stored configuration of a project's only run, with Trackio's own entries."""
    (run,) = trackio.Api().runs(project)
    return run.config


def test_nested_hyperparameters_are_stored_flat_and_kept_nested(logger: TrackioLogger, project: str) -> None:
    """The dashboard groups runs by top-level keys, so each leaf is one; ``experiment.config`` stays as given."""
    cfg = {"optim": {"lr": 3e-4, "betas": (0.9, 0.999)}, "env": {"name": "Pendulum-v1", "kwargs": {}}, "seed": 1}
    logger.log_hparams(cfg)
    logger.log_scalar("x", 1.0, step=0)
    logger.flush()
    assert config(project) == {
        "optim/lr": 3e-4,
        "optim/betas": [0.9, 0.999],
        "env/name": "Pendulum-v1",
        "env/kwargs": {},
        "seed": 1,
    }
    assert logger.experiment.config == cfg
    assert type(logger.experiment.config["optim"]["betas"]) is tuple


def test_before_and_after_the_first_row_and_twice(logger: TrackioLogger, project: str) -> None:
    """Later ones are added to earlier ones, level by level, and win where they meet."""
    logger.log_hparams({"a": 1, "b": 1, "optim": {"lr": 1.0, "name": "adam"}})
    logger.log_scalar("x", 0.0, step=0)
    logger.flush()
    logger.log_hparams({"b": 2, "c": 3, "optim": {"lr": 0.5}})
    logger.log_scalar("x", 1.0, step=1)
    logger.log_hparams({"d": 4})
    logger.flush()
    assert config(project) == {"a": 1, "b": 2, "c": 3, "d": 4, "optim/lr": 0.5, "optim/name": "adam"}
    assert logger.experiment.config == {"a": 1, "b": 2, "c": 3, "d": 4, "optim": {"lr": 0.5, "name": "adam"}}
    assert [row for row in rows(project) if row[1]] == [(0, {"x": 0.0}), (1, {"x": 1.0})]


def test_after_many_rows_and_no_more(project: str) -> None:
    """Hyperparameters that come last are stored at the end of the run."""
    with TrackioLogger("run", project) as logger:
        for step in range(10):
            logger.log_scalar("x", step, step=step)
        logger.flush()
        logger.log_hparams({"late": True})
    assert config(project) == {"late": True}
    assert [row for row in rows(project) if row[1]] == [(step, {"x": step}) for step in range(10)]


def test_the_last_of_many_calls_wins(logger: TrackioLogger, project: str) -> None:
    """Of several configurations within one batch, Trackio itself would keep the first."""
    for number in range(20):
        logger.log_hparams({"number": number, f"n{number}": number})
        logger.log_scalar("x", number, step=number)
    logger.flush()
    assert config(project) == {"number": 19, **{f"n{number}": number for number in range(20)}}


def test_a_run_without_a_row_keeps_them(project: str) -> None:
    """Trackio lists runs with rows only, so one without any gets an empty one that no count is disturbed by."""
    with TrackioLogger("run", project) as logger:
        logger.log_hparams({"a": 1})
        logger.flush()
        assert config(project) == {"a": 1}
    assert rows(project) == [(0, {})]
    assert [run.name for run in trackio.Api().runs(project)] == ["run"]


def test_a_run_with_nothing_stores_nothing(project: str) -> None:
    """A logger that is never used leaves no run behind."""
    with TrackioLogger("run", project) as logger:
        logger.flush()
    assert run_ids(project) == set()


def test_a_run_without_hyperparameters_has_trackios_entries(logger: TrackioLogger, project: str) -> None:
    """A run with rows but no hyperparameters is stored as Trackio's own is."""
    logger.log_scalar("x", 1.0, step=0)
    logger.flush()
    assert config(project) == {}
    assert "_Created" in stored_entries(project)


@pytest.mark.parametrize("resume", ["allow", "must"])
def test_a_resumed_run_keeps_what_it_had(project: str, resume: str) -> None:
    """The second session's are merged into the stored ones; Trackio itself would put them in their place."""
    with TrackioLogger("run", project, group="g", config={"algo": "sac"}) as logger:
        logger.log_hparams({"optim": {"lr": 1.0, "eps": math.nan}, "seed": 1, "shape": (1, 2)})
        logger.log_scalar("x", 0.0, step=0)
    with TrackioLogger("run", project, resume=resume, config={"machine": "b"}) as logger:
        assert logger.experiment.config["optim"]["lr"] == 1.0
        logger.log_hparams({"optim": {"lr": 0.5}})
        logger.log_scalar("x", 1.0, step=1)
    stored = {"algo": "sac", "optim/lr": 0.5, "optim/eps": "NaN", "seed": 1, "shape": [1, 2], "machine": "b"}
    assert config(project) == stored
    assert stored_entries(project)["_Group"] == "g"
    assert len(run_ids(project)) == 1


@pytest.mark.parametrize("resume", ["allow", "must"])
def test_a_resumed_run_without_new_ones_loses_none(project: str, resume: str) -> None:
    """Rows alone leave the stored configuration as it is."""
    with TrackioLogger("run", project) as logger:
        logger.log_hparams({"a": {"b": 1}, "optim": "adam", "optim/lr": 1.0})
        logger.log_scalar("x", 0.0, step=0)
    with TrackioLogger("run", project, resume=resume) as logger:
        logger.log_scalar("x", 1.0, step=1)
    assert config(project) == {"a/b": 1, "optim": "adam", "optim/lr": 1.0}


def test_a_key_beside_its_own_branch_survives_a_resume(project: str) -> None:
    """``a`` and ``a/b``, of which a nested configuration can hold but one, are both kept, twice."""
    for session in range(3):
        with TrackioLogger("run", project, resume="allow") as logger:
            logger.log_hparams({"a/b": {"c": 2, "d": 3}, "a": 1} if session == 0 else {f"s{session}": session})
            logger.log_scalar("x", session, step=session)
    assert config(project) == {"a": 1, "a/b/c": 2, "a/b/d": 3, "s1": 1, "s2": 2}


def test_a_new_run_of_that_name_has_its_own(project: str) -> None:
    """Without ``resume``, nothing is taken over."""
    for cfg in ({"a": 1}, {"b": 2}):
        with TrackioLogger("run", project) as logger:
            logger.log_hparams(cfg)
            logger.log_scalar("x", 0.0, step=0)
    assert config(project) == {"b": 2}
    assert len(run_ids(project)) == 2


def test_group_and_config_options_are_stored_with_them(project: str) -> None:
    """What the constructor was given survives log_hparams, and is a part of the same configuration."""
    with TrackioLogger("run", project, group="g1", config={"algo": {"name": "sac"}, "seed": 1}) as logger:
        logger.log_hparams({"algo": {"tau": 0.5}, "seed": 2})
        logger.log_scalar("x", 0.0, step=0)
        assert logger.experiment.config == {"algo": {"name": "sac", "tau": 0.5}, "seed": 2}
    assert config(project) == {"algo/name": "sac", "algo/tau": 0.5, "seed": 2}
    assert stored_entries(project)["_Group"] == "g1"


def test_a_direct_change_of_the_configuration_is_stored(logger: TrackioLogger, project: str) -> None:
    """``experiment.config`` is a dict to change at will, also deep inside, and also to take away from."""
    logger.log_hparams({"a": {"b": 1, "c": 2}, "d": 3})
    logger.log_scalar("x", 0.0, step=0)
    logger.flush()
    changed = logger.experiment.config
    changed.update(e=torch.tensor([1.0, 2.0]), f=OmegaConf.create({"g": {"h": 1}}), i=argparse.Namespace(j=1))
    changed["a"]["b"] = 10
    changed["a"]["k"] = {"l": Color.RED}
    del changed["d"]
    logger.log_scalar("x", 1.0, step=1)
    logger.flush()
    stored = {"a/b": 10, "a/c": 2, "a/k/l": "red", "e": [1.0, 2.0], "f/g/h": 1, "i/j": 1}
    assert config(project) == stored


LEAVES: dict[str, tuple[Any, Any]] = {
    "None": (None, None),
    "bool": (True, True),
    "text": ("a\nb ✓", "a\nb ✓"),
    "float": (1e-3, 1e-3),
    "enum": (Color.RED, "red"),
    "enum by name": (Mode.FAST, "FAST"),
    "IntEnum": (Level.HIGH, 3),
    "path": (PurePosixPath("/a/b"), "/a/b"),
    "class": (torch.nn.Tanh, "Tanh"),
    "own class": (Optim, "Optim"),
    "function": (a_function, "a_function"),
    "builtin": (len, "len"),
    "lambda": (lambda x: x, "<lambda>"),
    "method": (argparse.ArgumentParser().parse_args, "ArgumentParser.parse_args"),
    "partial": (functools.partial(a_function, 1), "partial(a_function)"),
    "partial of a partial": (functools.partial(functools.partial(len)), "partial(len)"),
    "partial class": (functools.partial(torch.nn.Linear, bias=False), "partial(Linear)"),
    "module": (torch.nn.ReLU(), "ReLU()"),
    "dtype": (torch.float32, "torch.float32"),
    "device": (torch.device("cuda:1"), "cuda:1"),
    "numpy dtype": (np.dtype("f4"), "float32"),
    "Size": (torch.Size([1, 2]), [1, 2]),
    "0-d tensor": (torch.tensor(5), 5),
    "grad": (torch.tensor([1.0, 2.0], requires_grad=True), [1.0, 2.0]),
    "bfloat16": (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
    "large tensor": (torch.zeros(40, 40), "Tensor of shape (40, 40) and dtype torch.float32"),
    "meta tensor": (
        torch.zeros(2, device="meta"),
        "Tensor of shape (2,) and dtype torch.float32, on device meta with layout torch.strided",
    ),
    "sparse tensor": (
        torch.eye(2).to_sparse(),
        "Tensor of shape (2, 2) and dtype torch.float32, on device cpu with layout torch.sparse_coo",
    ),
    "complex tensor": (torch.tensor([1j]), ["1j"]),
    "array": (np.arange(3), [0, 1, 2]),
    "(2, 2) array": (np.eye(2, dtype=int), [[1, 0], [0, 1]]),
    "large array": (np.zeros(1001), "ndarray of shape (1001,) and dtype float64"),
    "object array": (np.array([1, None, Color.RED]), [1, None, "red"]),
    "numpy float": (np.float32(0.5), 0.5),
    "numpy int": (np.int64(7), 7),
    "numpy bool": (np.True_, True),
    "numpy text": (np.str_("a"), "a"),
    "longdouble": (np.longdouble(1.5), "1.5"),
    "numpy date": (np.datetime64("2026-01-02"), "2026-01-02"),
    "date": (date(2026, 1, 2), "2026-01-02"),
    "bytes": (b"a", "b'a'"),
    "complex": (1j, "1j"),
    "range": (range(3), "range(0, 3)"),
    "tuple": ((1, (2, "a")), [1, [2, "a"]]),
    "named tuple": (Point(1, Color.RED), [1, "red"]),
    "set": ({10, 9, 1}, [1, 9, 10]),
    "mixed set": ({"b", "a", 2}, [2, "a", "b"]),
    "frozenset": (frozenset({(2, 1), (1, 2)}), [[1, 2], [2, 1]]),
    "keys": ({"a": 1}.keys(), ["a"]),
    "list of all kinds": (
        [torch.nn.ReLU, 64, np.float64(0.5), None, {"a": Color.RED}],
        ["ReLU", 64, 0.5, None, {"a": "red"}],
    ),
    "NaN": (math.nan, "NaN"),
    "infinity": (math.inf, "Infinity"),
    "-infinity": (np.float32(-math.inf), "-Infinity"),
    "NaN inside": ([1.0, {"a": math.nan}, (math.inf,)], [1.0, {"a": "NaN"}, ["Infinity"]]),
    "NaN tensor": (torch.tensor([math.nan, 1.0]), ["NaN", 1.0]),
    "largest int": (2**64 - 1, 2**64 - 1),
    "smallest int": (-(2**63), -(2**63)),
    "larger int": (2**64, "18446744073709551616"),
    "smaller int": (-(2**63) - 1, "-9223372036854775809"),
    "larger int inside": ([10**30], ["1" + "0" * 30]),
    "int of many digits": (16**9000, "0x1" + "0" * 9000),
    "surrogate": ("a\ud800b", "a?b"),
    "broken": (Broken(), "something without a repr (Broken)"),
    "uninitialized": (torch.nn.LazyLinear(3).weight, "something without a repr (UninitializedParameter)"),
}


@pytest.fixture(scope="module")
def leaves() -> dict[str, Any]:
    """What is stored of all leaves, which one call logs, nested."""
    with TrackioLogger("run", "test_hparams_leaves") as logger:
        logger.log_hparams({"all": {name: value for name, (value, _) in LEAVES.items()}})
        logger.log_scalar("x", 1.0, step=0)
    return config("test_hparams_leaves")


@pytest.mark.parametrize("name", LEAVES)
def test_every_value_is_stored_readably(leaves: dict[str, Any], name: str) -> None:
    """Numbers as numbers, names as names, the rest as text; none takes another with it."""
    stored, expected = leaves[f"all/{name}"], LEAVES[name][1]
    assert (stored, type(stored)) == (expected, type(expected))


def test_the_handle_keeps_tuples_and_numbers(logger: TrackioLogger) -> None:
    """``experiment.config`` holds plain Python: tuples, NaN and large integers are what they are."""
    logger.log_hparams({"a": (1, (2,)), "nan": math.nan, "int": 2**70, "point": Point(1, 2), "set": {2, 1}})
    held = logger.experiment.config
    assert repr(held) == repr({"a": (1, (2,)), "nan": math.nan, "int": 2**70, "point": (1, 2), "set": [1, 2]})


def cyclic() -> dict[str, Any]:
    """A mapping and a list that hold themselves."""
    inner: list[Any] = [1]
    inner.append(inner)
    cfg: dict[str, Any] = {"a": 1, "list": inner}
    cfg["self"] = {"again": cfg}
    return cfg


KEYS = {
    "not strings": (
        {1: "a", None: "b", 2.5: "c", ("d", "e"): "f", Color.RED: "g"},
        {"1": "a", "None": "b", "2.5": "c", "d/e": "f", "red": "g"},
    ),
    "underscores": ({"_x": 1, "__y": 2, "_": 3, "_target_": 4}, {"x_": 1, "y_": 2, "underscore_": 3, "target__": 4}),
    "underscores inside": ({"a": {"_x": 1, "_": {"_y": 2}}}, {"a/_x": 1, "a/_/_y": 2}),
    "underscored branch": ({"_a": {"_b": 1}}, {"a_/_b": 1}),
    "Trackio's": ({"_Group": "g", "_Created": 1, "_Username": 2}, {"Group_": "g", "Created_": 1, "Username_": 2}),
    "slashes and dots": ({"a/b": {"c/d": 1}, "e.f": 2, "": 3, " ": 4}, {"a/b/c/d": 1, "e.f": 2, "": 3, " ": 4}),
    "unicode": ({"损失": {"é": 1}}, {"损失/é": 1}),
    "surrogates": ({"a\ud800": 1, "b": {"\udfff": [{"\ud800": 2}]}}, {"a?": 1, "b/?": [{"?": 2}]}),
    "both ways": ({"a/b": 1, "a": {"b": 2}}, {"a/b": 2}),
    "cycles": (cyclic(), {"a": 1, "list": [1, "..."], "self/again": "..."}),
    "shared, not cyclic": ({"a": (shared := {"x": 1}), "b": shared}, {"a/x": 1, "b/x": 1}),
    "empty": ({"a": {}, "b": {"c": {}}, "d": []}, {"a": {}, "b/c": {}, "d": []}),
}


@pytest.mark.parametrize(("cfg", "stored"), KEYS.values(), ids=KEYS)
def test_every_key_is_stored(logger: TrackioLogger, project: str, cfg: dict[Any, Any], stored: dict[str, Any]) -> None:
    """Keys become text, and never start with the underscore that Trackio keeps for itself."""
    logger.log_hparams(cfg)
    logger.flush()
    assert config(project) == stored


@pytest.mark.parametrize("cfg", [{"_a": 1, "n": {"x": (1, 2)}}, OmegaConf.create({"_a": 1, "n": {"x": [1, 2]}})])
def test_the_config_option_takes_what_log_hparams_takes(project: str, cfg: Any) -> None:
    """Leading underscores, which ``trackio.init`` refuses, tuples and OmegaConf included."""
    with TrackioLogger("run", project, config=cfg) as logger:
        logger.log_scalar("x", 1.0, step=0)
    assert config(project) == {"a_": 1, "n/x": [1, 2]}


@dataclasses.dataclass
class Structured:
    """A structured configuration of OmegaConf's."""

    color: Color = Color.RED
    lr: float = MISSING
    table: dict[str, int] = dataclasses.field(default_factory=lambda: {"a": 1})


def omegaconf_configs() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Of the kinds that torchrl's and BenchMARL's scripts pass."""
    hydra = OmegaConf.create({"seed": 7, "optim": {"lr": 1e-3, "seed": "${seed}"}, "net": {"cells": [64, "${seed}"]}})
    resolved = {"seed": 7, "optim/lr": 1e-3, "optim/seed": 7, "net/cells": [64, 7]}
    missing = {"a": "???", "b": "${nowhere}", "c": "${d}", "d": 1, "e": ["???", "${d}"], "f": None, "g": {"h": "${b}"}}
    kept = {"a": "???", "b": "${nowhere}", "c": 1, "d": 1, "e": ["???", 1], "f": None, "g/h": "${b}"}
    self_reference = OmegaConf.create({"a": {"b": "${a}", "c": 1}})
    return {
        "DictConfig": (hydra, resolved),
        "dict of DictConfigs": (dict(hydra), resolved),
        "dict of dicts of DictConfigs": ({"all": {"cfg": hydra}}, {f"all/cfg/{key}": v for key, v in resolved.items()}),
        "one node of a tree": ({"optim": hydra.optim}, {"optim/lr": 1e-3, "optim/seed": 7}),
        "list of DictConfigs": ({"a": [OmegaConf.create({"b": 1})]}, {"a": [{"b": 1}]}),
        "missing and unresolvable": (OmegaConf.create(missing), kept),
        "self-reference": (self_reference, {"a/b": "${a}", "a/c": 1}),
        "interpolated branch": (OmegaConf.create({"a": {"x": 1}, "b": "${a}"}), {"a/x": 1, "b/x": 1}),
        "structured": (OmegaConf.structured(Structured), {"color": "red", "lr": "???", "table/a": 1}),
        "read-only": (OmegaConf.create({"a": 1}, flags={"readonly": True}), {"a": 1}),
        "keys of all kinds": (OmegaConf.create({1: "a", 2.5: "b", Color.RED: "c"}), {"1": "a", "2.5": "b", "red": "c"}),
    }


@pytest.mark.parametrize("kind", omegaconf_configs())
def test_omegaconf_is_resolved(logger: TrackioLogger, project: str, kind: str) -> None:
    """Containers become plain, at any depth; what cannot be resolved stays text, and its neighbours do not."""
    cfg, stored = omegaconf_configs()[kind]
    logger.log_hparams(cfg)
    logger.flush()
    assert config(project) == stored


MAPPINGS = {
    "dataclass": (Agent(seed=1), {"optim/lr": 1e-3, "optim/betas": [0.9, 0.999], "activation": "Tanh", "seed": 1}),
    "Namespace": (argparse.Namespace(lr=1.0, sub=argparse.Namespace(a=1)), {"lr": 1.0, "sub/a": 1}),
    "SimpleNamespace": (types.SimpleNamespace(lr=1.0), {"lr": 1.0}),
    "OrderedDict": (OrderedDict(b=1, a=OrderedDict(c=2)), {"b": 1, "a/c": 2}),
    "mapping proxy": (types.MappingProxyType({"a": 1}), {"a": 1}),
    "TensorDict": (TensorDict({"a": torch.tensor(1), "b": {"c": torch.tensor([1.0])}}), {"a": 1, "b/c": [1.0]}),
    "mixed": (
        {"a": Agent(seed=1), "b": argparse.Namespace(c=OmegaConf.create({"d": 1}))},
        {"a/optim/lr": 1e-3, "a/optim/betas": [0.9, 0.999], "a/activation": "Tanh", "a/seed": 1, "b/c/d": 1},
    ),
}


@pytest.mark.parametrize(("cfg", "stored"), MAPPINGS.values(), ids=MAPPINGS)
def test_every_kind_of_configuration_is_taken(
    logger: TrackioLogger, project: str, cfg: Any, stored: dict[str, Any]
) -> None:
    """Mappings, dataclass instances and namespaces, each within the other."""
    logger.log_hparams(cfg)
    logger.flush()
    assert config(project) == stored


BAD = {
    "None": (None, "None (NoneType)"),
    "list": ([("a", 1)], "[('a', 1)] (list)"),
    "text": ("lr=1", "'lr=1' (str)"),
    "number": (1, "1 (int)"),
    "class": (dict, "<class 'dict'> (type)"),
    "dataclass itself": (Optim, f"{Optim!r} (type)"),
    "ListConfig": (OmegaConf.create([1]), "[1] (ListConfig)"),
    "object": (Broken(), "something without a repr (Broken)"),
    "enum": (Color.RED, "<Color.RED: 'red'> (Color)"),
}


@pytest.mark.parametrize(("cfg", "got"), BAD.values(), ids=BAD)
def test_anything_else_is_refused_and_loses_nothing(logger: TrackioLogger, project: str, cfg: Any, got: str) -> None:
    """The call raises, and says what it got and takes; hyperparameters and rows around it are stored."""
    message = f"hyperparameters must be a mapping, a DictConfig, a dataclass instance or a Namespace, got {got}"
    logger.log_hparams({"a": 1})
    logger.log_scalar("x", 1.0, step=0)
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        logger.log_hparams(cfg)
    logger.log_hparams({"b": 2})
    logger.flush()
    assert config(project) == {"a": 1, "b": 2}
    assert [row for row in rows(project) if row[1]] == [(0, {"x": 1.0})]


def test_the_callers_dicts_stay_as_they_were(project: str) -> None:
    """Neither the given mappings nor those within are changed, kept or merged into."""
    option, cfg = {"a": {"b": 1}}, {"a": {"c": [1, {"d": 2}]}, "_e": (1,)}
    before = copy.deepcopy((option, cfg))
    with TrackioLogger("run", project, config=option) as logger:
        logger.log_hparams(cfg)
        logger.log_hparams({"a": {"b": 5}})
        logger.experiment.config["a"]["f"] = 6
        assert (option, cfg) == before
        cfg["a"]["c"].append(7)
        cfg["g"] = 8
        option.clear()
        logger.log_scalar("x", 1.0, step=0)
    assert config(project) == {"a/b": 5, "a/c": [1, {"d": 2}], "a/f": 6, "e_": [1]}


def test_a_tensor_may_be_reused_after_the_call(logger: TrackioLogger, project: str) -> None:
    """What it held at the call is stored."""
    tensor, array = torch.ones(2), np.ones(2)
    logger.log_hparams({"tensor": tensor, "array": array})
    tensor.zero_()
    array[:] = 0
    logger.flush()
    assert config(project) == {"tensor": [1.0, 1.0], "array": [1.0, 1.0]}
