"""What commands answer of stored trials stays as it was frozen, byte for byte."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from pgpaces.store import digests
from pgpaces.store.store import Store

from . import answered


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return answered.unpacked(tmp_path_factory.mktemp("answered"))


@pytest.fixture(scope="module")
def frozen() -> dict[str, str]:
    return answered.frozen()


@pytest.mark.parametrize("line", list(answered.questions()))
def test_an_answer_is_what_it_was_when_it_was_frozen(
    line: str, store: Path, frozen: dict[str, str]
) -> None:
    assert answered.answer(line, store) == frozen[line]


def numbers(document: object) -> list[float]:
    """All of a document, in its order."""
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        return [number for each in document for number in numbers(each)]
    return [float(document)] if isinstance(document, int | float) else []


def test_rules_that_change_what_a_digest_says_have_a_new_version(store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        stored = dict(connection.execute("SELECT id, digest_version FROM trial"))
    assert set(stored.values()) == {digests.VERSION}, (
        "python -m tests.unit.answered makes them anew"
    )
    opened = Store.existing(store)
    for id_ in stored:
        [old] = opened.digests([id_])
        new = digests.compute(opened.load(id_))
        was, now = (numbers(json.loads(digests.text(each))) for each in (old, new))
        assert was == pytest.approx(now, rel=1e-6, nan_ok=True), (
            f"{id_}: raise VERSION in digest.py"
        )


def test_every_answer_in_json_has_its_verdict_at_one_place() -> None:
    documents = [json.loads(text.partition("\n")[2]) for line, text in answered.frozen().items()
                 if line.endswith("json") and text.startswith("exit 0")
                 and not line.startswith(("export", "runs"))]  # fmt: skip
    assert len(documents) > 20
    for each in documents:
        found = [d["verdict"] for d in (each if isinstance(each, list) else [each])]
        assert all({"outcome", "text"} <= verdict.keys() for verdict in found)


def test_what_is_frozen_is_of_every_question_and_every_kind_of_trial(
    frozen: dict[str, str],
) -> None:
    assert list(frozen) == list(answered.questions())
    answers = [text for text in frozen.values() if text.startswith("exit 0")]
    assert len(answers) > 0.8 * len(frozen)
