"""What the documentation says of other libraries is so."""

from __future__ import annotations

import dp_accounting
import pytest
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

SELECTED = RepeatAndSelectDpEvent(dp_accounting.GaussianDpEvent(4.0), mean=10.0, shape=1.0)


def test_the_pld_accountant_of_dp_accounting_does_not_know_repeat_and_select():
    with pytest.raises(dp_accounting.UnsupportedEventError):
        PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(SELECTED)


def test_its_renyi_accountant_does():
    accountant = RdpAccountant()
    accountant.compose(SELECTED)
    assert 0 < accountant.get_epsilon(1e-5) < 10
