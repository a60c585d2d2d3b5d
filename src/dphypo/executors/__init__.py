"""Where runs are made: in this process, in processes of our own, or on an executor of yours."""

from dphypo.executors.dask import Dask as Dask
from dphypo.executors.executor import Crew as Crew
from dphypo.executors.executor import Executor as Executor
from dphypo.executors.executor import Factory as Factory
from dphypo.executors.executor import Withdrawn as Withdrawn
from dphypo.executors.executor import executors as executors
from dphypo.executors.executor import hire as hire
from dphypo.executors.futures import Futures as Futures
from dphypo.executors.futures import Pool as Pool
from dphypo.executors.groups import Groups as Groups
from dphypo.executors.in_process import InProcess as InProcess
from dphypo.executors.processes import Processes as Processes
from dphypo.executors.ray import Ray as Ray
from dphypo.executors.submitit import Submitit as Submitit
