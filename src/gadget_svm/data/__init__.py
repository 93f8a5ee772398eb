"""Data in: files and named data sets become CSR matrices and labels, and rows are dealt out to nodes."""

from gadget_svm.data.datasets import Dataset, load_dataset
from gadget_svm.data.formats import DataFileError, read_table, read_tables

__all__ = ["DataFileError", "Dataset", "load_dataset", "read_table", "read_tables"]
