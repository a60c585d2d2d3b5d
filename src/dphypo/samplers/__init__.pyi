from .gaussian_process import GaussianProcess as GaussianProcess
from .optuna import OptunaSampler as OptunaSampler
from .sampler import History as History
from .sampler import Sampler as Sampler
from .sampler import Uniform as Uniform
from .sampler import default_sampler as default_sampler
