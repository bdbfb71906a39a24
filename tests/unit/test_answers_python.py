"""Answers as Python values: the same as the commands', with words, charts, trials and a page."""

from __future__ import annotations

import gc
import lzma
from pathlib import Path

import pytest

import pgpaces
from pgpaces.analysis.compare import Verdict
from pgpaces.analysis.trend import Trend
from pgpaces.core.errors import PlanError
from pgpaces.show import draw
from tests.unit.answered import STORED
from tests.unit.stored import Kept, keep, opened


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two settings, a day apart, among each other."""
    path = tmp_path_factory.mktemp("python")
    store = opened(path)
    for day in range(16):
        name = ("small", "large")[day % 2]
        server = {"settings": {"work_mem": name}}
        run = Kept(f"R{day:02}", 10 - 2 * (day % 2) + day % 3 / 100, at=day, server=server)
        keep(store, run)
        store.tag(name, run.id)
    for clients in (1, 2, 3):
        keep(store, Kept(f"C{clients}", rate=10 * clients, at=30, plan={"clients": clients}))
    return path / "results.db"


def compared(place: Path) -> pgpaces.Answer:
    return pgpaces.compare(
        "small", "large", metric="mean", also=["p95"], factors=["set.work_mem"], store=place
    )


def test_a_comparison_is_a_verdict_with_its_words_and_trials(place: Path) -> None:
    found = compared(place)
    assert isinstance(found.value, Verdict)
    assert found.value.outcome == "better"
    assert found.sentences[0].startswith("large is better than small")
    assert str(found).splitlines() == list(found.sentences)
    assert repr(found).startswith("<comparison: BETTER large against small")
    assert len(found.trials) == 16


def test_what_the_commands_refuse_is_refused(place: Path) -> None:
    with pytest.raises(PlanError, match="what is compared was not named"):
        pgpaces.compare("small", "large", store=place)
    with pytest.raises(PlanError, match="differ in more than time"):
        pgpaces.trend("small", "large", store=place)
    assert pgpaces.compare("small", "large", anyway=True, store=place).value.outcome


def test_an_answer_keeps_no_connection_to_the_store(place: Path) -> None:
    def descriptors() -> int:
        files = (each.resolve() for each in Path("/proc/self/fd").iterdir())
        return sum(str(file).startswith(str(place)) for file in files)

    gc.collect()
    before = descriptors()
    small = ("small", "large")
    answers = [
        pgpaces.open_run("R00", store=place),
        compared(place),
        pgpaces.check("R01", baseline="small", anyway=True, store=place),
        pgpaces.trend(*small, anyway=True, store=place),
        pgpaces.why("R00", store=place),
    ]
    assert descriptors() == before
    assert all(answer.page.digests for answer in answers)
    assert descriptors() == before


def test_a_run_is_checked_against_its_baseline(place: Path) -> None:
    found = pgpaces.check("R15", baseline="small", metric="mean", anyway=True, store=place)
    assert found.value.basis == "runs"
    assert found.value.outcome == "better"


def test_a_trend_is_a_value_too(place: Path) -> None:
    trend = pgpaces.trend("small", metric="mean", store=place)
    assert isinstance(trend.value, Trend)
    assert trend.value.changes == ()


def test_a_chart_is_asked_for_by_its_name(place: Path) -> None:
    found = compared(place)
    assert [plot.name for plot in found.figures] == ["comparison-effect", "comparison-trials"]
    assert found.plot().name == "comparison-effect"
    assert found.plot("comparison-trials").spec["layer"]
    with pytest.raises(PlanError, match="no chart 'p95'") as refused:
        found.plot("p95")
    assert "comparison-effect" in str(refused.value.hint)


def test_its_report_has_the_form_that_the_ending_names(place: Path, tmp_path: Path) -> None:
    found = compared(place)
    assert found.report(tmp_path / "c.md").read_text().startswith("# large against small")
    assert found.page.sections[0] is found.section


def test_a_notebook_shows_words_tables_and_charts(place: Path) -> None:
    shown = compared(place)._repr_html_()
    assert "<strong>large is better than small" in shown
    assert "mean latency, ms" in shown
    if draw.available():
        assert shown.count("<svg") == 1, "the chart that shows it"


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("frozen") / "stored.db"
    path.write_bytes(lzma.decompress(STORED.read_bytes()))
    return path


def test_a_run_and_an_experiment_are_answers_with_all_that_answers_have(
    frozen: Path, tmp_path: Path
) -> None:
    run, sweep = pgpaces.open_run("single", store=frozen), pgpaces.open_sweep("swept", store=frozen)
    for found in (run, sweep):
        assert isinstance(found, pgpaces.Answer)
        assert found.verdict == "FAIL"
        assert repr(found).startswith(("<run: FAIL ", "<answer: FAIL "))
        assert len(found.frame()) == len(list(found.frame().rows())) > 1
        assert found.plot().spec["config"]
        assert found.report(tmp_path / "r.md").stat().st_size > 500
        card = found._repr_mimebundle_()["text/html"]
        assert "FAIL" in card
        assert card.count("<svg") == draw.available()
    assert run.trials == (run.id,)
    assert run.plot().name == "time-1"
    assert set(sweep.trials) == {digest.trial.id for digest in sweep.digests}
    assert sweep.plot().name == "missed"
    assert sweep.value == sweep.cells
    assert run.value is run.summary
