"""Pictures, as matplotlib figures: privacy profiles, costs, surveys, densities, and a curator's view.

Every function returns a ``matplotlib.figure.Figure`` and shows nothing; :func:`save` writes one to a PNG, SVG or PDF
file. They need the extra ``plots``: ``pip install 'dphypo[plots]'``.
"""

from dphypo.plots.canvas import save as save
from dphypo.plots.profile import audit_profile as audit_profile
from dphypo.plots.profile import certificate_profile as certificate_profile
from dphypo.plots.profile import epsilon_against as epsilon_against
from dphypo.plots.profile import privacy_profile as privacy_profile
from dphypo.plots.profile import sampling_density as sampling_density
from dphypo.plots.scores import curator_history as curator_history
from dphypo.plots.scores import curator_slices as curator_slices
from dphypo.plots.scores import survey_history as survey_history
from dphypo.plots.scores import survey_slices as survey_slices
