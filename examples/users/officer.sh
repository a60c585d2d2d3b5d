#!/bin/sh
# A privacy officer: what searches cost, proof of it, and one total for a data set. No data, no Python.
#
#     sh examples/users/officer.sh FOLDER
set -e
cd "$1"

# What one search costs, with proof; and the noise that a total asks for.
dphypo account --noise-multiplier 4 --records 10000 --batch-size 500 --epochs 2 --mean 5 --certificate first.json
dphypo calibrate --epsilon 1 --records 10000 --batch-size 500 --epochs 2 --mean 5 --certificate second.json

# What a certificate says, what it assumes, whether its numbers are right.
dphypo explain first.json
dphypo verify first.json

# What if the same search were adaptive, with more runs?
dphypo account --from first.json --band 0.5 2 --mean 20

# Both searches together, if they were declared together.
dphypo compose first.json second.json

# One total for everything that is ever released of the data set. A search that would exceed it is refused.
dphypo ledger open data.db --epsilon 3 --delta 1e-5
dphypo ledger reserve data.db first.json
dphypo ledger data.db
