"""Framework 1 of the paper: draw T, make T runs inside the band, release the best and nothing else."""

from dphypo.study.accounted import accounted as accounted
from dphypo.study.accounted import certified as certified
from dphypo.study.accounted import composed as composed
from dphypo.study.accounted import described as described
from dphypo.study.accounted import terms_of_search as terms_of_search
from dphypo.study.curator import Curator as Curator
from dphypo.study.declaration import SEEDED as SEEDED
from dphypo.study.declaration import Declaration as Declaration
from dphypo.study.declaration import check_entropy as check_entropy
from dphypo.study.declaration import check_space as check_space
from dphypo.study.framework1 import dp_hypo as dp_hypo
from dphypo.study.lost import Lost as Lost
from dphypo.study.next_params import Policy as Policy
from dphypo.study.next_params import claimed as claimed
from dphypo.study.next_params import prior_runs as prior_runs
from dphypo.study.opened import Opened as Opened
from dphypo.study.opened import open as open
from dphypo.study.part import Part as Part
from dphypo.study.part import Released as Released
from dphypo.study.part import Running as Running
from dphypo.study.part import Setting as Setting
from dphypo.study.search import Rules as Rules
from dphypo.study.search import Search as Search
from dphypo.study.study import Study as Study
from dphypo.study.subject import Subject as Subject
from dphypo.study.turn import Turn as Turn
