"""The ledger of private studies as a value."""

import pytest

from gadget_svm.peers.storage.ledger import Ledger, LedgerError


def test_studies_add_up_and_the_text_keeps_them():
    ledger = Ledger().reserve("aa", "first", 0, 0.5).reserve("aa", "first", 3, 0.5).reserve("bb", "second", 2, 0.25)
    assert (ledger.rounds("aa"), ledger.rounds("bb"), ledger.rounds("cc")) == (3, 2, 0)
    assert ledger.mu_squared == 2.0
    assert Ledger.parse(ledger.text()) == ledger


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "damaged"),
        ("[]", "damaged"),
        ('{"format": 2, "studies": {}}', "format 2: install the version"),
        ('{"format": 1, "studies": {"aa": {"nme": "x"}}}', "damaged"),
        ('{"format": 1, "studies": {"aa": {"name": "x", "rounds": -1, "mu_squared": 1.0}}}', "cannot be"),
        ('{"format": 1, "studies": {"aa": {"name": "x", "rounds": 1.5, "mu_squared": 1.0}}}', "cannot be"),
        ('{"format": 1, "studies": {"aa": {"name": "x", "rounds": 1, "mu_squared": NaN}}}', "cannot be"),
        (Ledger().reserve("aa", "first", 3, 0.5).text()[:-30], "damaged"),
    ],
)
def test_a_ledger_that_cannot_be_used_is_refused_with_the_fix(text, told):
    with pytest.raises(LedgerError, match=told):
        Ledger.parse(text)
