"""Searching: studies, surveys, last runs, and chains of them; what is declared, run, and released."""

from dphypo.search.curator import open_journal as open_journal
from dphypo.search.declaration import Part as Part
from dphypo.search.declaration import PriorAround as PriorAround
from dphypo.search.ladder import Ladder as Ladder
from dphypo.search.ladder import frontier as frontier
from dphypo.search.release import Release as Release
from dphypo.search.release import load_release as load_release
from dphypo.search.study import Stage as Stage
from dphypo.search.study import Stages as Stages
from dphypo.search.study import Study as Study
from dphypo.search.survey import LastRun as LastRun
from dphypo.search.survey import Survey as Survey
from dphypo.search.survey import SurveyPlan as SurveyPlan
from dphypo.search.tune import plan_tuning as plan_tuning
from dphypo.search.tune import tune as tune
