"""A run's history and nodes -> one HTML file that opens offline. Draws what it is given, measures nothing."""

from gadget_svm.report.needs import require_plotly
from gadget_svm.report.page import write_report

__all__ = ["require_plotly", "write_report"]
