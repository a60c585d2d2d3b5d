"""``python -m dphypo`` is the command line."""

from dphypo.cli import main

if __name__ == "__main__":
    main()
