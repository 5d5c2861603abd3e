"""What mkdocs does beside its own: files of the repository that pages link to become pages too, so that the site is whole.

A link such as `../deploy/slurm/job.sbatch` is right where the page is read in the repository. In the site it leads to
`repository/deploy/slurm/job.sbatch.md`, which shows the file; a Markdown file is a page as it is, a picture is copied.
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
"""What the navigation names."""


def place_of(source: str) -> PurePosixPath:
    """Where a page of the site stands in the repository."""
    path = PurePosixPath(source)
    return path.relative_to(FOLDER) if path.parts[0] == FOLDER else "docs" / path


def page_for(path: str) -> str:
    """The page of the site for a file of the repository, as mkdocs names its source."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    shown = path if path.endswith((".md", *PICTURES)) else f"{path}.md"
    return f"{FOLDER}/{shown}"


def file_of(path: str) -> Path:
    """A file of the repository; of the package where it is installed, if there are no sources here."""
    found = ROOT / path
    if not found.exists() and path.startswith("otel_memwatch/"):
        from importlib.resources import files

        return Path(str(files("otel_memwatch"))) / path.removeprefix("otel_memwatch/")
    return found


def targets(source: str, text: str) -> list[str]:
    """Files of the repository, outside of docs/, that a page links to."""
    here = place_of(source).parent
    linked = [normpath(f"{here}/{link[1]}") for link in LINK.finditer(text)]
    return [path for path in linked if not path.startswith(("docs/", ".."))]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files that are linked to, and those that these link to."""
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
            continue  # mkdocs says that the link leads nowhere
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
    """A page for a folder: what is in it."""
    names = sorted(one.name for one in folder.iterdir() if not one.name.startswith((".", "__pycache__")))
    up = relpath(path, PurePosixPath(path).parent)
    return f"# {path}\n\n" + "\n".join(f"- [{name}]({up}/{name})" for name in names) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links out of docs/ to the pages of these files."""
    del config, files
    source = page.file.src_uri
    here = place_of(source).parent

    def led(link: re.Match[str]) -> str:
        path = normpath(f"{here}/{link[1]}")
        if path.startswith(".."):
            return link[0]
        return relpath(page_for(path), PurePosixPath(source).parent) + (link[2] or "")

    return LINK.sub(led, markdown)
