"""The report of an audit: one self-contained HTML page [extra report]."""

from dpaudit.reporting.report.page import report, report_html

__all__ = ["report", "report_html"]
