"""What makes the README the site's first page, without a copy of it.

The README and what it links to lie outside of ``docs/``, where MkDocs does not look. So they are added to its files, at
the places that their links name; links between them and the pages, which are right in the repository, lose the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]


def on_files(files: Any, config: Any) -> Any:
    """Add the README as ``index.md``, and what it and the pages link to."""
    for path in (ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "examples").glob("*.*"))):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    files.append(File.generated(config, "index.md", abs_src_path=str(ROOT / "README.md")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are in the site: from the README into ``docs/``, and from there to what lies beside it."""
    return markdown.replace("](docs/", "](") if page.file.src_uri == "index.md" else markdown.replace("](../", "](")
