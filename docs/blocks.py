"""The fenced blocks of README and the pages of docs/, for what runs and checks them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(
    r"(?:<!-- (?P<kind>output|file)(?: of `(?P<command>[^`]+)`)?(?:: (?P<parts>[^>]+))? -->\n)?"
    r"^```(?P<language>[a-z]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def pages(names: list[str]) -> list[Path]:
    """The pages named, those of a folder, or all."""
    paths = [ROOT / name for name in names] or [ROOT / "README.md", ROOT / "docs"]
    return [page for path in paths for page in (sorted(path.rglob("*.md")) or [path])]


def name_of(page: Path) -> str:
    """A page as it is named in the repository."""
    return str(page.relative_to(ROOT))


def texts(page: str, language: str) -> list[str]:
    """The texts of a page's blocks in a language."""
    return [block["text"] for block in FENCE.finditer(page) if block["language"] == language]


def prose(page: str) -> str:
    """A page without its blocks; what stands before them stays."""
    return re.sub(r"^```[a-z]*\n.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)


def shell_lines(shell: str) -> list[str]:
    """The lines of a shell block, continued ones joined."""
    return re.sub(r"\\\n\s*", "", shell).splitlines()


def write_files(page: str, folder: Path) -> list[Path]:
    """Writes the files that a page has for its commands, and says which."""
    written = []
    for block in FENCE.finditer(page):
        if block["kind"] == "file":
            path = folder / block["parts"].strip()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], encoding="utf-8")
            written.append(path)
    return written
