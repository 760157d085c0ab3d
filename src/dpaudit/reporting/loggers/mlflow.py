"""A result in a run of MLflow: metrics, tags and the result itself.

Numbers become metrics, texts become tags. A store keeps no infinite number as it is, so
one of those becomes a tag, too. The result's JSON goes with the run as an artifact, and
so does the report if it is asked for: whoever finds the run can explain or verify it.

Needs the extra ``mlflow``. Any store of MLflow will do that is not a bare folder, which
it no longer writes to: a server, or a file of SQLite.
"""

from math import isfinite

from dpaudit.errors import InvalidInputError, MissingExtraError
from dpaudit.game.result import Result
from dpaudit.reporting.loggers.plain import as_metrics

try:
    import mlflow
except ImportError as error:
    raise MissingExtraError.of("results are logged to MLflow with", "mlflow") from error

__all__ = ["log_to_mlflow"]

_FOLDER = "dpaudit"


def log_to_mlflow(
    result: Result,
    *,
    run_id: str | None = None,
    step: int | None = None,
    report: bool = False,
) -> None:
    """Log a result to a run of MLflow.

    Args:
        result: Of any audit.
        run_id: Which run; the active one if left out.
        step: When in the run, if it is audited more than once. Metrics keep every
            step; tags and files are those of the last.
        report: Whether the report is logged beside the result, as
            ``dpaudit/report.html``; needs the extra ``report``.

    Raises:
        InvalidInputError: No run was named and none is active.
    """
    run_id = _active() if run_id is None else run_id
    page = _report(result) if report else None  # may fail, so before anything is logged
    metrics, tags = {}, {}
    for name, value in as_metrics(result).items():
        if isinstance(value, str) or not isfinite(value):
            tags[name] = str(value)
        else:
            metrics[name] = float(value)
    mlflow.log_metrics(metrics, step=step, run_id=run_id)
    client = mlflow.MlflowClient()
    for name, text in tags.items():
        client.set_tag(run_id, name, text)
    client.log_text(run_id, result.to_json(), f"{_FOLDER}/result.json")
    if page is not None:
        client.log_text(run_id, page, f"{_FOLDER}/report.html")


def _active() -> str:
    run = mlflow.active_run()
    if run is None:
        raise InvalidInputError(
            "no run of MLflow is active; call this within `with mlflow.start_run():`, "
            "or pass run_id="
        )
    return str(run.info.run_id)


def _report(result: Result) -> str:
    from dpaudit.reporting.report import report_html  # noqa: PLC0415 (another extra)

    return report_html(result)
