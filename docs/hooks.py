"""Hooks of MkDocs for `make site`: descriptions, llms.txt, linked files from outside docs/."""

from __future__ import annotations

import html
import posixpath
import re
import tomllib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# The target of a link to a file that may be outside docs/.
LINK = re.compile(r"(?<=\]\()\.\./[^)\s#]+")
PARAGRAPH = re.compile(r"<p>(.*?)</p>", re.DOTALL)


def on_config(config: MkDocsConfig) -> None:
    """The site is described as the package is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.site_description = project["description"]


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Give the site a copy of each file outside docs/ that the page links to."""

    def inside(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), link[0]))
        if not path.startswith("../"):
            return link[0]
        name = path.removeprefix("../")
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
        return link[0].removeprefix("../")

    return LINK.sub(inside, markdown)


def on_page_content(content: str, *, page: Page, config: MkDocsConfig, files: Files) -> None:
    """A page is described by its first sentence."""
    paragraph = PARAGRAPH.search(content)
    text = html.unescape(re.sub(r"<[^>]+>", "", paragraph[1] if paragraph else ""))
    page.meta["description"] = re.split(r"(?<=[.!?]) ", " ".join(text.split()))[0]


def on_env(env: Environment, *, config: MkDocsConfig, files: Files) -> None:
    """Write llms.txt: every page in the order of the navigation, with its first sentence."""
    lines = [f"# {config.site_name}", f"> {config.site_description}"]
    for section, pages in groupby(in_order(files), lambda page: [a.title for a in page.ancestors]):
        heading = [f"## {': '.join(reversed(section))}"] if section else []
        items = [
            f"- [{page.title}]({page.canonical_url or page.url}): {page.meta['description']}"
            for page in pages
        ]
        lines += [*heading, "\n".join(items)]
    files.append(File.generated(config, "llms.txt", content="\n\n".join(lines) + "\n"))


def in_order(files: Files) -> Iterator[Page]:
    """The pages of the navigation, from the first on."""
    home = files.get_file_from_path("README.md")
    page = home.page if home else None
    while page:
        yield page
        page = page.next_page
