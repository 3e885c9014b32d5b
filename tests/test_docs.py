"""The site's pages: their code runs, their error texts are the source's, and the reference leaves nothing out."""

from __future__ import annotations

import ast
import html
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import torchrl
import trackio

import torchrl_trackio
from children import Child
from servers import TOKEN, Server
from torchrl_trackio import TrackioLogger, TrackioRun, discovery

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
SOURCE = Path(torchrl_trackio.__file__).parent


# Code


def blocks(page: str) -> list[tuple[str, str]]:
    """What the comment before a Python block of a page says of it, and the block."""
    found = re.findall(r"^(?:<!-- (.*?) -->\n)?```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    assert len(found) == len(re.findall("^ *```python", (DOCS / page).read_text(), re.M))
    return found


def runs_here(comment: str) -> bool:
    """Whether a block's needs are installed."""
    if comment.startswith("not run"):
        return False
    needs = re.findall(r"[\w.]+", comment[len("needs ") :]) if comment.startswith("needs ") else []
    return all(importlib.util.find_spec(name) for name in needs)


class Script(Child):
    """Runs code as a file, with its own working folder."""

    def start(self, code: str) -> subprocess.Popen[str]:
        """Start the code and go on."""
        (self.folder / "script.py").write_text(code)
        command, pipe = [sys.executable, "script.py"], subprocess.PIPE
        return subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=pipe, stderr=pipe, text=True)


ALONE = [(page, *block) for page in PAGES for block in blocks(page) if '"__main__"' in block[1]]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_every_python_block_runs(page: str, tmp_path: Path) -> None:
    """In the order of the page, each in a namespace of its own; where the page says so, beside a server."""
    server = Server(tmp_path / "server")
    found = {"TRACKIO_SERVER_URL": server.url, "TRACKIO_WRITE_TOKEN": TOKEN}
    lines = ["import os"]
    for comment, code in blocks(page):
        if runs_here(comment) and (page, comment, code) not in ALONE:
            block = f"exec(compile({code!r}, {page!r}, 'exec'), {{}})"
            with_server = [f"os.environ.update({found})", block, f"for name in {[*found]}: del os.environ[name]"]
            lines += with_server if comment == "with a server" else [block]
    try:
        if any(comment == "with a server" for comment, _ in blocks(page)):
            server.start()
        done = Script(tmp_path).run("\n".join(lines))
        assert done.returncode == 0, done.stderr
        assert "TrackioWarning" not in done.stderr
        if server.folder.exists():
            assert server.steps("shared", "train/loss", "ppo") == [0]
    finally:
        server.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("page", "comment", "code"), ALONE, ids=lambda value: value[:20].split("\n")[0])
def test_a_block_that_starts_processes_runs(page: str, comment: str, code: str, tmp_path: Path) -> None:
    """As a file, which its processes import; everything is in one run."""
    if not runs_here(comment):
        pytest.skip(f"{page}: {comment}")
    child = Script(tmp_path)
    done = child.run(code)
    assert done.returncode == 0, done.stderr
    assert "TrackioWarning" not in done.stderr
    assert len(child.run_ids()) == 1


def test_the_recipe_for_preempted_jobs_loses_and_repeats_no_step(tmp_path: Path) -> None:
    """Ended by SIGTERM in the middle and started again, it has logged each step once, to one run."""
    code = next(code for _, code in blocks("recipes.md") if "SIGTERM" in code)
    child = Script(tmp_path)
    slowed = code.replace("    step += 1\n", "    step += 1\n        __import__('time').sleep(0.02)\n")
    assert slowed != code
    job = child.start(slowed)
    try:
        while not child.rows():
            assert job.poll() is None, job.communicate()[1]
            time.sleep(0.1)
        job.send_signal(signal.SIGTERM)
        errors = job.communicate(timeout=60)[1]
    finally:
        job.kill()
    assert job.returncode == 0, errors
    assert 0 < len(child.steps("train/loss")) < 300
    done = child.run(code)
    assert done.returncode == 0, done.stderr
    assert child.steps("train/loss") == list(range(300))
    assert len(child.run_ids()) == 1


def test_the_query_of_a_sweep_finds_the_best_hyperparameters(tmp_path: Path) -> None:
    """After the recipe's runs, the command on the page lists the better learning rate first."""
    child = Script(tmp_path)
    sweep = next(code for _, code in blocks("recipes.md") if 'project="sweep"' in code)
    assert child.run(sweep.replace("range(20)", "range(2)")).returncode == 0
    page = (DOCS / "recipes.md").read_text()
    command = re.search(r"```console\n\$ (trackio query .*?)```", page, re.DOTALL)[1]
    done = subprocess.run(command, shell=True, env=child.environment, capture_output=True, text=True, check=True)
    assert re.findall(r"^(0\.\d+) +\|", done.stdout, re.MULTILINE) == ["0.001", "0.0003"]


# Error texts


class Texts(ast.NodeVisitor):
    """The texts in a module, with ``…`` for what is only known when it runs.

    Attributes:
        all: every text.
        said: those that are raised or warned of, and that have words of their own.
    """

    def __init__(self, path: Path) -> None:
        self.all: set[str] = set()
        self.said: set[str] = set()
        tree = ast.parse(path.read_text())
        assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        self._named = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}
        self.visit(tree)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error says; a module's missing attribute is no text of ours."""
        if isinstance(node.exc, ast.Call) and ast.unparse(node.exc.func) != "AttributeError":
            self._say(node.exc.args)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """What a warning says."""
        if "warn" in ast.unparse(node.func):
            self._say(node.args)
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        """Any text."""
        if isinstance(node, (ast.JoinedStr, ast.Constant)):
            self.all.add(self._text(node))
        super().generic_visit(node)

    def _say(self, arguments: Iterable[ast.expr]) -> None:
        texts = map(self._text, arguments)
        self.said.update(text for text in texts if len(re.findall(r"[A-Za-z]{2,}", text)) >= 3)

    def _text(self, node: ast.expr, inside: tuple[str, ...] = ()) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.JoinedStr):
            return "".join(self._text(part, inside) for part in node.values)
        if isinstance(node, ast.FormattedValue):
            return self._text(node.value, inside)
        if isinstance(node, ast.Name) and node.id not in inside:
            named = self._named.get(node.id)
            return self._text(named, (*inside, node.id)) if isinstance(named, (ast.Constant, ast.JoinedStr)) else "…"
        return "…"


def texts_of(folder: Path) -> tuple[set[str], set[str]]:
    """All texts in the modules of a folder, and those that are raised or warned of; the command's have their own."""
    modules = [Texts(path) for path in folder.glob("*.py")]
    return set().union(*(texts.all for texts in modules)), set().union(*(texts.said for texts in modules))


def entries(*, ours: bool) -> list[str]:
    """What the troubleshooting page says that one may read: our own texts, or those of Trackio and torchrl."""
    own, others = (DOCS / "troubleshooting.md").read_text().split("## Texts of Trackio and torchrl")
    cells = re.findall(r"^\| (`.+?`) \|", own if ours else others, re.MULTILINE)
    return [text for cell in cells for text in cell.strip("`").split("`, `")]


def is_in(entry: str, text: str) -> bool:
    """Whether an entry's constant parts are in a text, in that order."""
    return re.search(".*".join(map(re.escape, entry.split("…"))), text, re.DOTALL) is not None


ALL, SAID = texts_of(SOURCE)


@pytest.mark.parametrize("entry", entries(ours=True), ids=str)
def test_an_error_text_on_the_page_is_in_the_source(entry: str) -> None:
    """So that a text that has changed is changed on the page, too."""
    assert any(is_in(entry, text) for text in ALL)


@pytest.mark.parametrize("text", sorted(SAID))
def test_an_error_text_in_the_source_is_on_the_page(text: str) -> None:
    """Whatever this package raises or warns of has an entry."""
    assert any(is_in(entry, text) for entry in entries(ours=True))


@pytest.mark.parametrize("entry", entries(ours=False))
def test_an_error_text_of_trackio_or_torchrl_is_in_theirs(entry: str) -> None:
    """The installed versions may say it."""
    theirs = [Path(trackio.__file__).parent, Path(torchrl.__file__).parent / "record" / "loggers"]
    if "Checkpoint resume" in entry and not hasattr(torchrl.record.CSVLogger, "state_dict"):
        pytest.skip("this torchrl has no state of loggers")
    if re.search("ProcessLogger|service|lifecycle", entry) and not hasattr(torchrl.record.loggers, "process"):
        pytest.skip("this torchrl has no logger services")
    assert any(is_in(entry, text) for folder in theirs for text in texts_of(folder)[0])


# The command line


def test_the_command_line_page_is_complete() -> None:
    """Every option, every section of the report, and every key of its JSON is on the page."""
    command = [sys.executable, "-m", "torchrl_trackio"]
    told = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    report = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=False).stdout)
    page = (DOCS / "command-line.md").read_text()
    options = set(re.findall(r"--[a-z]+", told)) - {"--help"}
    checks = [check for section in report["sections"].values() for check in section]
    assert {option for option in options if f"| `{option}` |" not in page} == set()
    assert {title for title in report["sections"] if f"\n{title}\n" not in page or f"| {title} |" not in page} == set()
    assert {key for key in {*report, *checks[0]} if f"`{key}`" not in page} == set()


# The site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    for name in ("mkdocs", "material", "mkdocstrings_handlers.python"):
        pytest.importorskip(name, reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def public(kind: type | object) -> set[str]:
    """The public names of a class that this package's own classes define, or of a module."""
    if not isinstance(kind, type):
        return {name for name, value in vars(kind).items() if getattr(value, "__module__", None) == kind.__name__}
    ours = [base for base in kind.__mro__ if base.__module__.startswith("torchrl_trackio")]
    return {name for base in ours for name in vars(base) if not name.startswith("_")}


REFERENCE = [
    *(f"torchrl_trackio.{name}" for name in torchrl_trackio.__all__ if not name.startswith("_")),
    *(f"torchrl_trackio.{kind.__name__}.{name}" for kind in (TrackioLogger, TrackioRun) for name in public(kind)),
    *(f"torchrl_trackio.discovery.{name}" for name in public(discovery) if not name.startswith("_")),
]


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_a_public_name_is_in_the_reference(name: str, site: Path) -> None:
    """With its docstring; so are the members that the logger inherits."""
    page = (site / "reference.html").read_text()
    after = page.partition(f'id="{name}"')[2]
    assert after, "no such anchor"
    value = pkgutil.resolve_name(name)
    first = re.sub(r":\w+:`|`", "", (inspect.getdoc(value) or "").partition("\n")[0])
    own = html.unescape(re.sub("<.*?>", "", after.split('class="doc doc-heading"')[1]))
    assert first
    assert first in own


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """Neither scripts, styles, fonts nor images come from another host."""
    pages = [path.read_text() for path in site.glob("*.html")]
    assert len(pages) >= 9
    loaded = [
        re.findall(r"""<(?:script|link|img)\b[^>]*?(?:src|href)=["']?(https?:[^"'> ]+)""", page) for page in pages
    ]
    styles = [path.read_text() for path in site.rglob("*.css")]
    assert [url for urls in loaded for url in urls] == []
    assert [url for style in styles for url in re.findall(r"url\([\"']?https?:[^)]+\)", style)] == []


def test_the_first_page_is_the_readme_with_all_it_links_to(site: Path) -> None:
    """Its headings, and the images and files that it shows."""
    page = (site / "index.html").read_text()
    readme = (ROOT / "README.md").read_text()
    headings = re.findall(r"^##? (.*)$", re.sub(r"^```.*?^```", "", readme, flags=re.M | re.S), re.M)
    text = re.sub("<.*?>", "", page)
    assert [heading for heading in headings if heading.replace("`", "") not in text] == []
    local = [link for link in re.findall(r'(?:src|href)="([^"#:?]+)"', page) if not link.startswith("data:")]
    assert "examples/ppo_cartpole.png" in local
    assert [link for link in local if not (site / link).exists()] == []
