"""What commands answer of stored trials stays as it was frozen, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_what_is_frozen_is_of_every_question_and_every_kind_of_trial(
    frozen: dict[str, str],
) -> None:
    assert list(frozen) == list(answered.questions())
    answers = [text for text in frozen.values() if text.startswith("exit 0")]
    assert len(answers) > 0.8 * len(frozen)
