"""The HTML report of a run: history and nodes in one file that opens offline. It draws, but measures nothing."""

from gadget_svm.report.figures import require_plotly
from gadget_svm.report.page import write_report

__all__ = ["require_plotly", "write_report"]
