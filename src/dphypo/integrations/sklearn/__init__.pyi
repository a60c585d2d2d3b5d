from .estimators import DPSGDClassifier as DPSGDClassifier
from .estimators import DPSGDRegressor as DPSGDRegressor
from .pipeline import Pickled as Pickled
from .pipeline import PrivateEstimator as PrivateEstimator
from .pipeline import per_record as per_record
from .pipeline import saver_for as saver_for
from .search import PrivateSearch as PrivateSearch
from .table import Schema as Schema
