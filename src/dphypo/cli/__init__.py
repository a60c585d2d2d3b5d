"""The command line: ``dphypo account``, ``dphypo calibrate`` and ``dphypo verify``."""

from dphypo.cli._app import main as main
