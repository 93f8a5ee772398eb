"""Reads files and named data sets into CSR matrices and labels, and partitions rows among nodes."""

from gadget_svm.data.datasets import Dataset, load_dataset
from gadget_svm.data.files import DataFileError
from gadget_svm.data.formats import read_files, read_table

__all__ = ["DataFileError", "Dataset", "load_dataset", "read_files", "read_table"]
