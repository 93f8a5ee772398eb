"""Real peers: one process a site, one node each, over mTLS. Needs the extra: pip install 'gadget-svm[peer]'."""
