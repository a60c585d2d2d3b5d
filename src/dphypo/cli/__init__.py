"""The command line: ``dphypo account``, ``dphypo calibrate``, ``dphypo plan`` and ``dphypo verify``."""

from dphypo.cli.app import main as main
