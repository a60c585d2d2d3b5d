"""The report of a release: one page of HTML. Needs the extra ``plots``: ``pip install 'dphypo[plots]'``."""
