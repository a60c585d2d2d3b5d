"""The command line: ``dphypo account``, ``dphypo calibrate``, ``dphypo design`` and ``dphypo verify``."""

from dphypo.cli.app import main as main
