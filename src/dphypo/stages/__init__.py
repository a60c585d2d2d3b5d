"""A chain of searches: each release shapes the next prior by a declared public rule, and the guarantees compose."""

from dphypo.stages.calibrate import calibrate_stages as calibrate_stages
from dphypo.stages.plan import Plan as Plan
from dphypo.stages.plan_file import PlanFile as PlanFile
from dphypo.stages.plan_file import read_plan as read_plan
from dphypo.stages.planned import Planned as Planned
from dphypo.stages.planned import PlannedRuns as PlannedRuns
from dphypo.stages.planned import PlannedStudy as PlannedStudy
from dphypo.stages.prior_around import PriorAround as PriorAround
from dphypo.stages.stage import Stage as Stage
from dphypo.stages.stage import StageTrial as StageTrial
from dphypo.stages.stages import Stages as Stages
from dphypo.stages.tuning import stages_of as stages_of
from dphypo.stages.tuning import tune as tune
from dphypo.study import Released as Released
