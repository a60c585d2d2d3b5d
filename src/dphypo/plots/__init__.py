"""Pictures, as matplotlib figures: privacy profiles, costs, frontiers, surveys, densities, and a curator's view.

Every function returns a ``matplotlib.figure.Figure`` and shows nothing; :func:`save` writes one to a PNG, SVG or PDF
file. They need the extra ``plots``: ``pip install 'dphypo[plots]'``.
"""

from dphypo.plots.canvas import COLOURS as COLOURS
from dphypo.plots.canvas import require_matplotlib as require_matplotlib
from dphypo.plots.canvas import save as save
from dphypo.plots.canvas import to_svg as to_svg
from dphypo.plots.cost import epsilon_against_band as epsilon_against_band
from dphypo.plots.cost import epsilon_against_noise as epsilon_against_noise
from dphypo.plots.cost import epsilon_against_runs as epsilon_against_runs
from dphypo.plots.curator import curator_history as curator_history
from dphypo.plots.curator import curator_slices as curator_slices
from dphypo.plots.density import sampling_density as sampling_density
from dphypo.plots.effects import FEWEST as FEWEST
from dphypo.plots.effects import Effect as Effect
from dphypo.plots.effects import Surrogate as Surrogate
from dphypo.plots.profile import BOUNDS as BOUNDS
from dphypo.plots.profile import privacy_profile as privacy_profile
from dphypo.plots.profile import stated_profile as stated_profile
from dphypo.plots.spending import Spent as Spent
from dphypo.plots.spending import frontier as frontier
from dphypo.plots.spending import read_spent as read_spent
from dphypo.plots.spending import unbeaten as unbeaten
from dphypo.plots.survey import survey_contour as survey_contour
from dphypo.plots.survey import survey_history as survey_history
from dphypo.plots.survey import survey_importance as survey_importance
from dphypo.plots.survey import survey_slice as survey_slice
from dphypo.plots.survey import survey_slices as survey_slices
from dphypo.plots.table_columns import columns as columns
