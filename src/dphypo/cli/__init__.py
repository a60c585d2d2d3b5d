"""The command line: ``dphypo account``, ``dphypo calibrate``, ``dphypo design`` and ``dphypo verify``."""

from dphypo.cli._app import main as main
