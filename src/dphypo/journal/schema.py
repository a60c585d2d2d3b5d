"""The tables of a journal. Their constraints make an invalid history impossible to write.

| invalid state | what forbids it |
|---|---|
| a second T for a study | one row a study, T in it |
| run number T or beyond | the run repeats T (a foreign key) and its number is checked against it |
| a run drawn twice | primary key of the run |
| an outcome without a run, or two outcomes of a run | foreign and primary key of the outcome |
| an outcome both scored and failed, or neither, or an infinite score | check |
| two models, or the model of a run without an outcome | one row a study, foreign key |
| a second release | primary key of the release |
| a run after the release | all T numbers are taken: a release is written when every outcome is in |
| rows that were edited, added or removed | the seal, which every commit compares and moves on |
| a commit by a process that was replaced | the owner, which every commit compares |

There are no times anywhere: they would show T to whoever sees a copy.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

MAX_ATTEMPTS = 3
"""A run whose process died this often is a failure."""

_LARGEST = "1.7976931348623157e308"

metadata = MetaData()

study = Table(
    "dphypo_study",
    metadata,
    Column("name", Text, primary_key=True),
    Column("declaration", Text, nullable=False),  # public values, as JSON
    Column("total", Integer),  # T; null once the journal is reduced to the certificate
    CheckConstraint("total >= 0"),
    UniqueConstraint("name", "total"),
)

trial = Table(
    "dphypo_trial",
    metadata,
    Column("study", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),  # in the order in which the λ were drawn
    Column("total", Integer, nullable=False),
    Column("params", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("tie_key", LargeBinary, nullable=False),
    Column("attempts", Integer, nullable=False),
    ForeignKeyConstraint(["study", "total"], ["dphypo_study.name", "dphypo_study.total"]),
    CheckConstraint("number >= 0 AND number < total"),
    CheckConstraint(f"attempts >= 0 AND attempts <= {MAX_ATTEMPTS}"),
)

outcome = Table(
    "dphypo_outcome",
    metadata,
    Column("study", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("score", Double),
    Column("failure", Text),
    ForeignKeyConstraint(["study", "number"], ["dphypo_trial.study", "dphypo_trial.number"]),
    CheckConstraint("(score IS NULL) <> (failure IS NULL)"),
    CheckConstraint(f"score >= -{_LARGEST} AND score <= {_LARGEST}"),
)

# The one model that is kept: the best so far.
best = Table(
    "dphypo_best",
    metadata,
    Column("study", Text, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("model", LargeBinary, nullable=False),
    ForeignKeyConstraint(["study", "number"], ["dphypo_outcome.study", "dphypo_outcome.number"]),
)

release = Table(
    "dphypo_release",
    metadata,
    Column("study", Text, ForeignKey("dphypo_study.name"), primary_key=True),
    Column("ending", Text, nullable=False),
    Column("certificate", Text, nullable=False),
)

# What every commit compares: who runs the study, and the sum of the digests of its rows.
seal = Table(
    "dphypo_seal",
    metadata,
    Column("study", Text, ForeignKey("dphypo_study.name"), primary_key=True),
    Column("owner", Text, nullable=False),  # a random token of the process that runs the study
    Column("total", Text, nullable=False),  # the sum of the digests
    Column("model", Text),  # the digest of the kept model
)

# Public numbers that took long to find, such as the noise that a budget asks for.
solved = Table(
    "dphypo_solved",
    metadata,
    Column("study", Text, primary_key=True),
    Column("question", Text, primary_key=True),
    Column("answer", Double, nullable=False),
)

# A sign of life of the process that runs a study, where the database cannot see whether it lives: a random word that it
# replaces every few seconds. It is no time and no count.
lease = Table(
    "dphypo_lease",
    metadata,
    Column("study", Text, primary_key=True),
    Column("beat", Text, nullable=False),
)
