"""Hooks of mkdocs: add the linked files of the repository as pages, to make the site complete.

A link such as `../deploy/slurm/job.sbatch` works in the repository. In the site it leads to
`repository/deploy/slurm/job.sbatch.md`, which shows the file. A Markdown file becomes a page; a picture is copied.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
FOLDER = "repository"
PICTURES = (".png", ".svg")
ALWAYS = ("otel_memwatch/ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
"""Files in the navigation."""


def place_of(source: str) -> PurePosixPath:
    """Return the path of a page in the repository."""
    path = PurePosixPath(source)
    return path.relative_to(FOLDER) if path.parts[0] == FOLDER else "docs" / path


def page_for(path: str) -> str:
    """Return the page for a file of the repository, by mkdocs' name of its source."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    shown = path if path.endswith((".md", *PICTURES)) else f"{path}.md"
    return f"{FOLDER}/{shown}"


def file_of(path: str) -> Path:
    """Return a file of the repository, or of the installed package if the sources are absent."""
    found = ROOT / path
    if not found.exists() and path.startswith("otel_memwatch/"):
        from importlib.resources import files

        return Path(str(files("otel_memwatch"))) / path.removeprefix("otel_memwatch/")
    return found


def targets(source: str, text: str) -> list[str]:
    """Return the files outside docs/ that a page links to."""
    here = place_of(source).parent
    linked = [normpath(f"{here}/{link[1]}") for link in LINK.finditer(text)]
    return [path for path in linked if not path.startswith(("docs/", ".."))]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add linked files, and the files that these link to."""
    waiting = list(ALWAYS)
    for file in files.documentation_pages():
        waiting += targets(file.src_uri, file.content_string)
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        origin = file_of(path)
        if origin.is_dir():
            text = listing(path, origin)
        elif not origin.exists():
            continue  # mkdocs reports the broken link
        elif path.endswith(PICTURES):
            files.append(_added(config, path, abs_src_path=str(origin)))
            continue
        else:
            text = origin.read_text(encoding="utf-8")
            if not path.endswith(".md"):
                text = f"# {path}\n\n````text\n{text.rstrip()}\n````\n"
        files.append(_added(config, path, content=text))
        if path.endswith(".md") or origin.is_dir():
            waiting += targets(page_for(path), text)
    return files


def _added(config: MkDocsConfig, path: str, **source: str) -> File:
    return File.generated(config, page_for(path), inclusion=InclusionLevel.NOT_IN_NAV, **source)


def listing(path: str, folder: Path) -> str:
    """Return a page that lists a folder."""
    names = sorted(one.name for one in folder.iterdir() if not one.name.startswith((".", "__pycache__")))
    up = relpath(path, PurePosixPath(path).parent)
    return f"# {path}\n\n" + "\n".join(f"- [{name}]({up}/{name})" for name in names) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links out of docs/ to the pages of these files."""
    del config, files
    source = page.file.src_uri
    here = place_of(source).parent

    def led(link: re.Match[str]) -> str:
        path = normpath(f"{here}/{link[1]}")
        if path.startswith(".."):
            return link[0]
        return relpath(page_for(path), PurePosixPath(source).parent) + (link[2] or "")

    return LINK.sub(led, markdown)
