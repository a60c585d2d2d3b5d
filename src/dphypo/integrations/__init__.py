"""Bridges to training libraries, each imported only when it is used."""
