"""The command line: ``dphypo --help`` lists the commands."""

from dphypo.cli.app import main as main
