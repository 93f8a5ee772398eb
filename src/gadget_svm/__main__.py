"""Run the command `gadget`: ``python -m gadget_svm``."""

from gadget_svm.cli import main

main()
