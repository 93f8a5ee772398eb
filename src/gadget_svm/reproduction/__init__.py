"""The paper's evaluation: which methods are compared, what is measured, and how the results are written."""
