"""`python -m gadget_svm.cli` is `gadget`."""

from gadget_svm.cli import main

main()
