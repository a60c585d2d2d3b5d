"""Accounting: the privacy of one run, the theorems, guarantees, calibration and certificates.

Everything here is a pure function of public values. Nothing here ever sees a journal, a score or a draw.
"""

from dphypo.accounting import plan_document as plan_document
from dphypo.accounting import untrusted as untrusted
from dphypo.accounting.calibration import calibrate as calibrate
from dphypo.accounting.calibration import calibrate_band as calibrate_band
from dphypo.accounting.calibration import calibrate_mean as calibrate_mean
from dphypo.accounting.certificate import CITATIONS as CITATIONS
from dphypo.accounting.certificate import Certificate as Certificate
from dphypo.accounting.certificate import plain as plain
from dphypo.accounting.certificate import table_hash as table_hash
from dphypo.accounting.composition import Composition as Composition
from dphypo.accounting.composition import Term as Term
from dphypo.accounting.events import Event as Event
from dphypo.accounting.events import canonical as canonical
from dphypo.accounting.events import event_to_dict as event_to_dict
from dphypo.accounting.guarantee import Guarantee as Guarantee
from dphypo.accounting.guarantee import OrderWarning as OrderWarning
from dphypo.accounting.guarantee import account as account
from dphypo.accounting.guarantee_json import to_json as to_json
from dphypo.accounting.noise import Calibration as Calibration
from dphypo.accounting.noise import Keep as Keep
from dphypo.accounting.noise import equal_noise as equal_noise
from dphypo.accounting.noise import run_alone as run_alone
from dphypo.accounting.noise import solve_noise as solve_noise
from dphypo.accounting.noise import solve_settings as solve_settings
from dphypo.accounting.own_events import ApproximateDp as ApproximateDp
from dphypo.accounting.own_events import PureDp as PureDp
from dphypo.accounting.own_events import RdpCurve as RdpCurve
from dphypo.accounting.own_events import RoundedDp as RoundedDp
from dphypo.accounting.own_events import ideal as ideal
from dphypo.accounting.policy import PolicyClass as PolicyClass
from dphypo.accounting.premises import assumptions as assumptions
from dphypo.accounting.premises import breaks as breaks
from dphypo.accounting.profiles import Discrete as Discrete
from dphypo.accounting.profiles import Floats as Floats
from dphypo.accounting.published import PublishedRuns as PublishedRuns
from dphypo.accounting.published import account_published as account_published
from dphypo.accounting.second_opinion import epsilon_from_below as epsilon_from_below
from dphypo.accounting.sides import EVERYONE as EVERYONE
from dphypo.accounting.sides import Part as Part
from dphypo.accounting.sides import Side as Side
from dphypo.accounting.sides import Sides as Sides
from dphypo.accounting.sides import Split as Split
from dphypo.accounting.sides import read_sides as read_sides
from dphypo.accounting.solve import round_up as round_up
from dphypo.accounting.solve import watch as watch
from dphypo.accounting.untrusted import Refused as Refused
from dphypo.accounting.untrusted import printable as printable
from dphypo.accounting.untrusted import read_json as read_json
from dphypo.accounting.verification import Verification as Verification
from dphypo.accounting.verification import guarantee_of as guarantee_of
from dphypo.accounting.verification import verify as verify
from dphypo.errors import UnaccountableError as UnaccountableError
from dphypo.errors import UnreachableError as UnreachableError
