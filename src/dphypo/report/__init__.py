"""Reports: one page of HTML about a release, and one, marked secret, for the curator of a study.

They need the extra ``plots``: ``pip install 'dphypo[plots]'``.
"""
