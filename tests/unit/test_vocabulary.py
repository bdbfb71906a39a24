"""Names and prose of the program keep to the words of the field, not to a dialect of its own."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python/pgpaces"
# What a name of a value must not be: a participle that says nothing of what the value is.
EMPTY_NAMES = frozenset(
    (*("given", "found", "asked", "made", "said", "told", "held", "tried", "wanted"),
     *("seen", "taken", "kept", "meant", "known", "gone"))
)  # fmt: skip
# Words that must not be a part of any name.
EMPTY_PARTS = frozenset(
    (*("said", "told", "asked", "beside", "behind", "nobody", "somebody", "whoever", "lanes"),
     *("seats", "warden", "keeper", "soundness", "foreseen", "wishes", "originals"))
)  # fmt: skip
# Words that prose (comments, docstrings, messages) must do without, and what to write instead.
PROSE = {
    r"nobody|no one": "no client, no session: name it",
    r"somebody|someone": "another session, the user: name it",
    r"who(ever|so)\b|\bwho (has|is|was|does|wants|uses|asks|looks|knows|reads)": "name the subject",
    r"of ours|(of )?our own": "managed, of pgpaces",
    r"so (many|much|long(?! as)|near|little)\b(?! (that|as))": "N, a count, a duration: name it",
    r"beside\b": "background workload, besides, next to, with",
    r"behind(?! (a|an|the|one|its|another|this|that) (connection )?(pool|proxy|load))": "after",
    r"lanes|seats|warden|keeper|soundness|wishes": "see the vocabulary",
    r"foreseen|gone on with|is no whole number|has no good end|mind:": "see the vocabulary",
    r"does it hold|(cell|load)s? holds?\b|it holds\?": "meets the limit, the goal; its capacity",
    r"(?-i:TPS)\b": "tx/s",
    r"not estimable": "an en dash with a footnote",
    r"is (said|told)|are (said|told)|was (said|told)|be (said|told)|(said|told) of": (
        "reported, printed, stated: say what the program does"
    ),
    r"what (is|was) (given|asked|told|said)": "the request, the options, the message: name it",
}
_PROSE = {re.compile(rf"\b({words})", re.IGNORECASE): advice for words, advice in PROSE.items()}


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that a file gives to something, with its line."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield line, node.name
        elif isinstance(node, ast.arg):
            yield line, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield line, node.id
        elif isinstance(node, ast.alias) and node.asname:
            yield line, node.asname


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Comments and texts of a file, with their lines; no keys, which other programs read."""
    kept = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kept and " " in token.string.strip("\"'"):
            for n, line in enumerate(token.string.splitlines()):
                yield token.start[0] + n, line


def defects(path: Path) -> list[str]:
    text = path.read_text()
    bad = [f"{path.relative_to(ROOT)}:1: name of the file"] * (path.stem in EMPTY_PARTS)
    for line, name in names(ast.parse(text)):
        bare = name.strip("_").lower()
        parts = set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))
        if bare in EMPTY_NAMES or parts & EMPTY_PARTS:
            bad.append(f"{path.relative_to(ROOT)}:{line}: name {name}")
    for line, words in prose(text):
        for pattern, advice in _PROSE.items():
            bad += [
                f"{path.relative_to(ROOT)}:{line}: '{match[0]}': {advice}"
                for match in pattern.finditer(words)
            ]
    return bad


FILES = sorted(p for p in PACKAGE.rglob("*.py") if "migrations" not in p.parts)


TEXTS = [*PACKAGE.glob("experiments/*"), *PACKAGE.glob("workloads/_new/*")]


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_words_of_files_that_users_copy(path: Path) -> None:
    text = path.read_text()
    assert [m[0] for pattern in _PROSE for m in pattern.finditer(text)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_words_of_the_field(path: Path) -> None:
    assert defects(path) == []
