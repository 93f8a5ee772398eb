"""`python -m gadget_svm` is `gadget`."""

from gadget_svm.cli import main

main()
