"""Plain arrays and values: the state of nodes, messages, networks, rows and the objective."""
