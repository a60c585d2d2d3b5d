"""Where people get this package. Whoever publishes it elsewhere changes this file, and no other."""

from dphypo import __version__

INSTALL = f"pip install dphypo-{__version__}-py3-none-any.whl"
WHERE = "The wheel comes from whoever gave you the release, or from dphypo's repository: make wheel builds it there."
