"""Real peers: one process a site, one node each, over mTLS. Needs the extra: pip install 'gadget-svm[peer]'."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # connections come and go, ports are taken: our own log says so
