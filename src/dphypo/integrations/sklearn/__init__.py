"""Private hyperparameter search with scikit-learn's habits: :class:`PrivateSearch`, and estimators to search over."""

from dphypo.integrations.sklearn._estimators import DPSGDClassifier as DPSGDClassifier
from dphypo.integrations.sklearn._estimators import DPSGDRegressor as DPSGDRegressor
from dphypo.integrations.sklearn._protocol import PrivateEstimator as PrivateEstimator
from dphypo.integrations.sklearn._search import PrivateSearch as PrivateSearch
