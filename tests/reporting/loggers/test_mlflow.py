"""MLflow with a real store, a file of SQLite: what was logged is what is read back."""

import mlflow
import pytest

from dpaudit.errors import InvalidInputError
from dpaudit.game.result import Result
from dpaudit.reporting.loggers.mlflow import log_to_mlflow
from dpaudit.reporting.loggers.plain import as_metrics

# MLflow's tables use an option that SQLAlchemy means to remove.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    before = mlflow.get_tracking_uri()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("DO_NOT_TRACK", "true")
        mlflow.set_tracking_uri(f"sqlite:///{folder / 'store.db'}")
        yield mlflow.create_experiment(
            "audits", artifact_location=(folder / "artifacts").as_uri()
        )
        mlflow.set_tracking_uri(before)


def stored(run):
    return mlflow.MlflowClient().get_run(run.info.run_id).data


def test_every_number_is_a_metric_and_every_text_a_tag(experiment, counted):
    result = counted()
    with mlflow.start_run(experiment_id=experiment) as run:
        log_to_mlflow(result)
    data = stored(run)
    for name, value in as_metrics(result).items():
        if isinstance(value, str):
            assert data.tags[name] == value
        else:
            assert data.metrics[name] == float(value)
    assert data.metrics["dpaudit/refuted"] == 1.0


def test_the_result_can_be_read_back_from_the_run(experiment, trained):
    with mlflow.start_run(experiment_id=experiment) as run:
        log_to_mlflow(trained)
    text = mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/dpaudit/result.json")
    assert Result.from_json(text).to_json() == trained.to_json()


def test_an_infinite_number_is_a_tag_and_no_metric(experiment, without_epsilon):
    with mlflow.start_run(experiment_id=experiment) as run:
        log_to_mlflow(without_epsilon)
    data = stored(run)
    assert data.tags["dpaudit/claimed_epsilon"] == "inf"
    assert "dpaudit/claimed_epsilon" not in data.metrics


def test_a_run_that_is_audited_twice_keeps_both_bounds(experiment, counted):
    with mlflow.start_run(experiment_id=experiment) as run:
        pass
    for step, correct in ((100, 1400), (200, 1439)):
        log_to_mlflow(counted(correct), run_id=run.info.run_id, step=step)
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "dpaudit/right")
    assert [(at.step, at.value) for at in history] == [(100, 1400), (200, 1439)]


@pytest.mark.usefixtures("experiment")
def test_without_a_run_it_says_what_to_do(counted):
    with pytest.raises(InvalidInputError, match=r"with mlflow\.start_run\(\)"):
        log_to_mlflow(counted())


def test_the_report_goes_along_if_asked_for(experiment, counted):
    with mlflow.start_run(experiment_id=experiment) as run:
        log_to_mlflow(counted(), report=True)
    page = mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/dpaudit/report.html")
    assert page.lower().startswith("<!doctype html>")
