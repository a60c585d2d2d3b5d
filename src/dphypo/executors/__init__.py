"""Where runs are executed: in this process, in processes of this library, or on an executor of yours."""

from dphypo.executors.dask import Dask as Dask
from dphypo.executors.executor import Executor as Executor
from dphypo.executors.executor import Withdrawn as Withdrawn
from dphypo.executors.futures import Pool as Pool
from dphypo.executors.ray import Ray as Ray
from dphypo.executors.submitit import Submitit as Submitit
