"""``dpaudit-lab reproduce``, as a user runs it."""

import json
import sys

import pytest
from typer.testing import CliRunner

from dpaudit.cli import _library
from dpaudit_lab.cli import app
from dpaudit_lab.paper.names import FIGURES


def run(*arguments):
    return CliRunner().invoke(app, ["reproduce", *arguments])


@pytest.fixture
def here(tmp_path):
    """Run with a store and a folder of the test's own."""

    def here(*arguments):
        return run(
            *arguments, f"--store={tmp_path / 's.sqlite'}", f"--out={tmp_path / 'f'}"
        )

    return here


def test_the_list_names_every_figure_and_needs_no_extra(monkeypatch):
    for module in ("loky", "matplotlib"):
        monkeypatch.setitem(sys.modules, module, None)
    done = run("--list")
    assert done.exit_code == 0
    rows = done.stdout.splitlines()
    assert [row.split()[0] for row in rows] == list(FIGURES)
    for row, figure in zip(rows, FIGURES.values(), strict=True):
        whose = (
            "which are ours" if figure.name == "local-laplace" else "as in the paper"
        )
        assert row.endswith(f"{figure.shows}; {figure.repeats} repeats, {whose}")


@pytest.mark.nightly
def test_a_figure_is_drawn_written_and_compared(here, tmp_path):
    page = tmp_path / "docs" / "figures.md"
    page.parent.mkdir()
    done = here("sets", "--trials=2", f"--page={page}")
    assert done.exit_code == 0
    out = tmp_path / "f"
    names = sorted(path.name for path in out.iterdir())
    suffixes = ("csv", "json", "pdf", "png", "svg")
    assert names == [f"sets.{suffix}" for suffix in suffixes]
    found = json.loads((out / "sets.json").read_text("utf-8"))
    assert found["repeats"] == 2
    assert found["ran"] == 22
    assert found["text"] in done.stdout
    assert "printed 1.998" in done.stdout
    assert "(../f/sets.svg)" in page.read_text("utf-8")
    assert (out / "sets.svg").stat().st_size < 150_000


@pytest.mark.nightly
def test_every_picture_names_the_paper_s_number(here, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        "dpaudit_lab.pictures.curves.draw_chart",
        lambda chart, path: drawn.update({path.suffix: chart.title}),
    )
    assert here("sets", "--trials=2").exit_code == 0
    assert sorted(drawn) == [".pdf", ".png", ".svg"]
    assert {title.partition(":")[0] for title in drawn.values()} == {"Figure 9"}


def test_plain_pictures_have_the_paper_s_curves_and_no_words(
    here, monkeypatch, tmp_path
):
    drawn = {}
    monkeypatch.setattr(
        "dpaudit_lab.pictures.curves.draw_chart",
        lambda chart, path: drawn.update({path.suffix: chart}),
    )
    assert here("guesses", "--trials=2", "--plain").exit_code == 0
    assert sorted(drawn) == [".pdf", ".png", ".svg"]
    for chart in drawn.values():
        assert chart.title == chart.caption == ""
        assert chart.limits == chart.marks == ()
        names = [curve.name for curve in chart.curves]
        assert names == ["estimation", "bound (Steinke et al.)"]
        assert {point.curve for point in chart.points} == set(names)
    rows = (tmp_path / "f" / "guesses.csv").read_text("utf-8")
    assert "no audit's median above" in rows  # the file has all points


@pytest.mark.nightly
def test_what_is_in_the_store_is_not_run_again(here, tmp_path):
    first = here("local-laplace", "--trials=2")
    written = (tmp_path / "f" / "local-laplace.csv").read_bytes()
    again = here("local-laplace", "--trials=2")
    assert first.exit_code == again.exit_code == 0
    start = "(2 repeats; the paper's figure has no experiments; "
    assert f"{start}42 trials took" in first.stdout
    there = "its trials were in the store already"
    assert f"{start}{there}; in an earlier run 42 trials took" in again.stdout
    assert again.stdout.splitlines()[1:] == first.stdout.splitlines()[1:]
    (tmp_path / "f" / "local-laplace.json").unlink()
    once_more = here("local-laplace", "--trials=2")
    assert f"{start}{there})" in once_more.stdout
    assert (tmp_path / "f" / "local-laplace.csv").read_bytes() == written


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ([], "name a figure, or all; --list shows what there is"),
        (["figure-1"], "there is no figure 'figure-1'; choose one of guesses"),
        (["sets", "--trials=1"], "--trials must be a whole number >= 2"),
        (["sets", "--workers=0"], "workers must be a whole number >= 1"),
        (["sets", "--plain", "--page=p.md"], "give --plain or --page"),
    ],
)
def test_misuse_exits_with_2_and_advice(here, arguments, advice):
    done = here(*arguments)
    assert done.exit_code == 2
    assert advice in done.stderr
    assert done.stdout == ""


def test_a_folder_that_cannot_be_made_is_told_before_anything_runs(tmp_path):
    (tmp_path / "taken").write_text("a file")
    store = tmp_path / "s.sqlite"
    done = run("sets", f"--out={tmp_path / 'taken'}", f"--store={store}")
    assert done.exit_code == 2
    assert "File exists" in done.stderr
    assert not store.exists()


def test_a_page_that_cannot_be_written_is_told_before_anything_runs(here, tmp_path):
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "folder.md").mkdir()
    for page in (tmp_path / "folder.md", tmp_path / "taken" / "page.md"):
        done = here("sets", f"--page={page}")
        assert done.exit_code == 2
        assert f"{page} cannot be written (" in done.stderr
        assert "name another place with --page" in done.stderr
    assert not (tmp_path / "s.sqlite").exists()
    assert not (tmp_path / "f").exists()


def test_a_page_that_is_there_is_left_alone_until_all_has_run(here, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("as it was")
    done = here("sets", "--workers=0", f"--page={page}")
    assert done.exit_code == 2
    assert page.read_text() == "as it was"


@pytest.mark.nightly
def test_after_an_interrupt_the_last_part_alone_is_counted(here):
    assert here("local-laplace", "--trials=2").exit_code == 0
    done = here("local-laplace", "--trials=3")  # as if 42 had been run before
    assert "21 of its 63 trials took " in done.stdout
    assert "the others were in the store already" in done.stdout


def test_a_file_that_is_no_store_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be looked at " * 40)
    done = run("sets", f"--store={path}", f"--out={tmp_path / 'f'}")
    assert done.exit_code == 2
    assert "name another file with --store" in done.stderr


def test_without_an_extra_it_is_named(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "loky", None)
    monkeypatch.delitem(sys.modules, "dpaudit.engines.local", raising=False)
    monkeypatch.delitem(vars(_library), "LocalEngine", raising=False)
    done = here("sets", "--trials=2")
    assert done.exit_code == 2
    assert "pip install '.[sweep]'" in done.stderr
