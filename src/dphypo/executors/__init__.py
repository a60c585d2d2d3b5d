"""Where runs are executed: in this process, in processes of this library, or on an executor of yours."""

from dphypo.executors.clusters import Dask as Dask
from dphypo.executors.clusters import Ray as Ray
from dphypo.executors.clusters import Submitit as Submitit
from dphypo.executors.executor import Executor as Executor
from dphypo.executors.executor import Withdrawn as Withdrawn
from dphypo.executors.futures import Pool as Pool
