"""Reports: one page of HTML about a release, and one, marked secret, for the curator of a study.

They need the extra ``plots``: ``pip install 'dphypo[plots]'``.
"""

from dphypo.report.curator_report import write_curator_report as write_curator_report
from dphypo.report.folder import read_tables as read_tables
from dphypo.report.folder import write_folder_report as write_folder_report
from dphypo.report.release_report import write_report as write_report
