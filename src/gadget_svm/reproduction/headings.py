"""The reproduction's fixed words: headings, captions and style. No number stands here."""

HEADINGS: dict[str, tuple[str, dict[str, str]]] = {
    "table1": (
        "Table 1: the data sets, as loaded",
        {"dataset": "data", "train": "train", "test": "test", "features": "features", "density_percent": "non-zero %",
         "lam": "lambda", "note": "what it is"},
    ),
    "table2": (
        "Table 2: GADGET and centralised Pegasos",
        {"dataset": "data", "method": "method", "accuracy_mean": "accuracy %", "accuracy_sd": "+-",
         "paper_accuracy": "paper %", "seconds_mean": "seconds", "paper_seconds": "paper s",
         "winner": "won by", "winner_equal": "as many examples", "objective_mean": "objective",
         "gap_percent": "above the optimum, %", "promise": "promised gap", "iterations_mean": "iterations",
         "epsilon": "epsilon", "accuracy_whole_mean": "on all test rows"},
    ),
    "table3": (
        "Table 3: GADGET and the others",
        {"dataset": "data", "method": "method", "accuracy_mean": "accuracy %", "accuracy_sd": "+-",
         "paper_accuracy": "paper %", "seconds_mean": "seconds", "paper_seconds": "paper s",
         "objective_mean": "objective", "gap_percent": "above the optimum, %", "promise_percent": "promised, %",
         "proven_percent": "proven, %", "messages": "messages",
         "iterations_mean": "iterations", "accuracy_whole_mean": "on all test rows"},
    ),
    "table4": (
        "Table 4 (appendix): with the time to load",
        {"dataset": "data", "method": "method", "accuracy_mean": "accuracy %", "load_seconds": "loading s",
         "seconds_mean": "training s", "total_seconds": "together s", "speedup": "speed-up factor",
         "paper_seconds": "paper s", "paper_speedup": "paper's factor"},
    ),
    "network": (
        "Network structure, lost messages, dead nodes",
        {"study": "study", "topology": "graph", "nodes": "nodes", "gossip": "gossip", "level": "level",
         "trials": "trials", "accuracy_mean": "accuracy %", "accuracy_sd": "+-",
         "accuracy_min": "worst node accuracy %", "accuracy_min_sd": "+-", "disagreement": "disagreement",
         "messages": "messages", "spectral_gap": "spectral gap"},
    ),
}  # fmt: skip

CAPTIONS = {
    "table1": "Lambda is the paper's (Gisette's is ours, the paper names none). Data that is a subset of the paper's says so.",
    "table2": (
        "Accuracy is the mean over nodes and trials, each node tested on its own share of the test rows as in the "
        "paper (on all of them in the last column); the deviation is sqrt(Var(nodes) + Var(trials)). Seconds are "
        "training alone on one core: of GADGET the time of the whole simulated network divided by its nodes, without "
        "any network's latency. GADGET is Algorithm 2 with one example and one Push-Sum round an iteration, under the "
        "budget of iterations that the table states: the printed epsilon rule cannot end a run (epsilon is how far the "
        "farthest weight vector moved in the last iteration). In T iterations its nodes see T examples each; Pegasos "
        'is given T in all, as in the paper, and in a second row as many as all nodes together. "Won by" is the '
        'paper\'s lexicographic comparison of (accuracy, time), accuracy to a tenth of a per cent. "As-published" '
        "behaves as the authors' program does, and is compared with the figure the paper prints for GADGET. The "
        "optimum is a certified lower bound (dual coordinate ascent to a duality gap of 0.01 %, with --quick 1 %); the "
        "promised gap is SVM-Perf's epsilon, or what Pegasos' theorem allows after so many iterations."
    ),
    "table3": (
        "SVM-Perf, SVM-SGD and local-only run on every node's shard by itself. MoM-DSVM (Forero et al. 2010) and "
        "gadget-2ps (the older GADGET with two Push-Sum calls, here of three rounds each) run over the same network as "
        "GADGET; messages are those of the whole network in one trial. The objective is that of all rows. MoM-DSVM runs "
        "until the multipliers of all its nodes together, a feasible point of the pooled dual, prove the worst node to "
        "be no farther above the optimum than it promises, or until its iterations run out; an observer looks, at "
        "geometrically spaced iterations and outside the clock. What is promised and proven is of the worst node in "
        "the worst trial, in per cent of the bound proven; the column before is the mean over nodes and trials, against "
        "the optimum of Table 2."
    ),
    "table4": (
        "Loading is reading svmlight text: one file of all rows for Pegasos, one file of its own rows for each node of "
        "GADGET. The speed-up factor is defined as the paper defines it, distributed time over centralised time: "
        "*below* 1 the distributed run is faster. Gisette's lambda is not in the paper; ours is 1e-4."
    ),
    "network": (
        "GADGET, means over as many trials as the table states: one where the network is too large for more. The first "
        "deviation is Table 2's, the second that of the worst node over trials. Graphs are compared at the next power of two of the nodes asked for, of which a hypercube can be made; "
        "lost messages and crashes are studied at the number asked for. Level is the percentage of messages lost, or "
        "the number of nodes that crash half-way. Push-Sum sends to one neighbour a round, which starves the leaves of "
        'a star (and of sparse random graphs): `gossip="auto"` sends to all neighbours there. Accuracy is on all test '
        "rows, over the nodes that are left; disagreement is the farthest node's distance from the average, relative to "
        "its length."
    ),
    "figures": "Lines are means over the nodes, bands reach from the best node to the worst; first trial.",
    "network_figure": "What the graph, the number of nodes, lost messages and dead nodes do to the network: "
    "means over trials, bars of one standard deviation where there was more than one trial.",
}

QUICK = "A quick look with a tenth of the work: the verdicts below are those of an unfinished run."

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;color:#1c2430;"
    "background:#fff}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;white-space:nowrap}"
    "th,td{padding:.25rem .6rem;border-bottom:1px solid #d8dee6;text-align:right}"
    "th:nth-child(-n+2),td:nth-child(-n+2){text-align:left}figure{margin:1.5rem 0}img{max-width:100%}"
    "td:last-child{white-space:normal;min-width:9em}figcaption{color:#556;font-size:13px}"
)
