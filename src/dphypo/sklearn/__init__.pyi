from .estimators import DPSGDClassifier as DPSGDClassifier
from .estimators import DPSGDRegressor as DPSGDRegressor
from .fitting import Pickled as Pickled
from .fitting import PrivateEstimator as PrivateEstimator
from .fitting import saver_for as saver_for
from .private_search import PrivateSearch as PrivateSearch
from .schema import Schema as Schema
