"""Numbers as text, and the nodes that are lost at the end of a run."""

from gadget_svm.report.formatting import count, lost_nodes, mark_lost, number, percent, size
from support.report_runs import event, summary


def test_numbers_as_text():
    assert (percent(0.5), percent(None), percent(float("nan"))) == ("50.00 %", "-", "-")
    assert (size(999), size(1.5e6), size(2e15)) == ("999 B", "1.5 MB", "2e+03 TB")
    assert (number(1 / 3), number(float("inf")), count(1234567), count(None)) == ("0.33333", "-", "1,234,567", "-")


def test_lost_nodes_are_those_not_back():
    lost, back = event("lost", 2, 3, 40), event("restarted", 2, 3, 60)
    assert lost_nodes([]) == lost_nodes([lost, back]) == lost_nodes([back]) == {}
    assert lost_nodes([lost, event("restart failed", 2, 3, 50), event("lost", 0, 0, 55)]) == {2: 40, 3: 40, 0: 55}
    assert lost_nodes([lost, back, event("lost", 2, 3, 80)]) == {2: 80, 3: 80}
    assert lost_nodes([event("checkpoint failed", 0, 5, 10)]) == {}


def test_records_without_losses_stay_as_they_are():
    run = summary(4)
    assert mark_lost(run["nodes"], run["average"], {}, 4) == (run["nodes"], run["average"])
