"""Accounting: the privacy of one run, the theorems, guarantees, calibration and certificates.

Everything here is a pure function of public values. Nothing here ever sees a journal, a score or a draw.
"""

from dphypo.accounting.calibrate import calibrate as calibrate
from dphypo.accounting.calibrate import solve_noise as solve_noise
from dphypo.accounting.certificate import Certificate as Certificate
from dphypo.accounting.composition import Composition as Composition
from dphypo.accounting.composition import Split as Split
from dphypo.accounting.composition import Term as Term
from dphypo.accounting.events import ApproximateDp as ApproximateDp
from dphypo.accounting.events import PureDp as PureDp
from dphypo.accounting.events import RdpCurve as RdpCurve
from dphypo.accounting.events import RoundedDp as RoundedDp
from dphypo.accounting.guarantee import Guarantee as Guarantee
from dphypo.accounting.guarantee import account as account
from dphypo.accounting.verify import verify as verify
