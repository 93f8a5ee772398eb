"""What a summary says of lost actors."""

from gadget_svm.report.formatting import describe_losses


def test_describe_losses_in_one_line():
    def event(kind, actor, iteration, **more):
        return {"event": kind, "actor": actor, "nodes": [2 * actor, 2 * actor + 1], "iteration": iteration, **more}

    def told(*events):
        return describe_losses([{"events": [one]} for one in events] + [{}])

    lost = event("lost", 1, 1000, why="no answer")
    said = "On the way: actor 1 with nodes 2 to 3 was lost at iteration 1,000 (no answer)"
    assert told() == ""
    assert told(lost) == f"{said}, not back."
    assert told(lost, event("restart failed", 1, 1005, why="no file")) == f"{said}, not back."
    assert told(event("restarted", 0, 4), lost, event("restarted", 1, 1010), {**lost, "iteration": 2000}) == (
        "On the way: actor 0 with nodes 0 to 1 came back at iteration 4; "
        "actor 1 with nodes 2 to 3 was lost at iteration 1,000 (no answer), back at iteration 1,010; "
        "actor 1 with nodes 2 to 3 was lost at iteration 2,000 (no answer), not back."
    )
    assert told(*({**lost, "actor": i} for i in range(30))).endswith("; and 10 more.")
    assert told({**event("checkpoint failed", 0, 60, why="no space left"), "actor": None}) == (
        "On the way: a checkpoint could not be written at iteration 60 (no space left)."
    )
