from .gaussian_process import GaussianProcess as GaussianProcess
from .parzen import Parzen as Parzen
from .proposals import OptunaSampler as OptunaSampler
from .proposals import Proposals as Proposals
from .sampler import History as History
from .sampler import Sampler as Sampler
from .sampler import Uniform as Uniform
from .sampler import default_sampler as default_sampler
