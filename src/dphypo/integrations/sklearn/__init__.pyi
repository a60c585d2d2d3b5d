from .estimators import DPSGDClassifier as DPSGDClassifier
from .estimators import DPSGDRegressor as DPSGDRegressor
from .protocol import Pickled as Pickled
from .protocol import PrivateEstimator as PrivateEstimator
from .protocol import saver_for as saver_for
from .schema import Schema as Schema
from .search import PrivateSearch as PrivateSearch
from .steps import per_record as per_record
