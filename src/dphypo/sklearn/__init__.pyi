from .estimators import DPSGDClassifier as DPSGDClassifier
from .estimators import DPSGDRegressor as DPSGDRegressor
from .private_search import PrivateSearch as PrivateSearch
from .schema import Schema as Schema
