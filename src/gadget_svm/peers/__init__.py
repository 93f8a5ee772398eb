"""Real peers: one process a site, one node each, over mTLS. Needs the extra: pip install 'gadget-svm[peer]'."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # connections come and go; what matters is in our own log
