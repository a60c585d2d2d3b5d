"""Surveys: runs whose results are all published and paid for by composition. Only data, seeds and times are secret."""

from dphypo.survey.last_run import LastRun as LastRun
from dphypo.survey.optimiser import Following as Following
from dphypo.survey.optimiser import FromOptuna as FromOptuna
from dphypo.survey.optimiser import Optimiser as Optimiser
from dphypo.survey.pick import Pick as Pick
from dphypo.survey.pick import PosteriorMean as PosteriorMean
from dphypo.survey.plan import PRICE as PRICE
from dphypo.survey.plan import SurveyPlan as SurveyPlan
from dphypo.survey.plan import Tuning as Tuning
from dphypo.survey.plan import plan_tuning as plan_tuning
from dphypo.survey.plan import steps_of as steps_of
from dphypo.survey.running import listed as listed
from dphypo.survey.survey import Survey as Survey
from dphypo.table import Row as Row
from dphypo.table import Status as Status
from dphypo.table import Surveyed as Surveyed
