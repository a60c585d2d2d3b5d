from .estimators import DPSGDClassifier as DPSGDClassifier
from .estimators import DPSGDRegressor as DPSGDRegressor
from .protocol import PrivateEstimator as PrivateEstimator
from .search import PrivateSearch as PrivateSearch
