"""Broken versions of Theorem H, by name. Each replaces one function or class of the package while a test runs."""

from __future__ import annotations

import numpy as np
from support.history_known import HistoryProfile

from dphypo.accounting.theorems import lemma2, theorem_h_history_only
from dphypo.accounting.theorems import theorem_h_history_only as theorem_h
from dphypo.band import Band

_corners, _hull, _payoff, _left, _pair = (
    theorem_h.corners,
    theorem_h._hull,
    theorem_h.payoff,
    theorem_h._left,
    theorem_h_history_only.lattice_pair,
)


def _without_tau(pair, low, high, tau_high):
    return _left(pair, low, high, high)


def _only_where_forced(pair, low, high, tau_high):
    on, _ = _left(pair, low, high, tau_high)
    return on, np.where(pair.on > 0, on / np.where(pair.on > 0, pair.on, 1.0), 0.0) * pair.off


def _upper_tail(pair, low, high, tau_high):
    mirrored = theorem_h_history_only.LatticePair(pair.step, pair.first, pair.on[::-1].copy())
    object.__setattr__(mirrored, "off", pair.off[::-1].copy())
    on, off = _left(mirrored, low, high, tau_high)
    return on[:, ::-1], off[:, ::-1]


def _wrong_way_round(pair, low, high, tau_high):
    below = np.concatenate([[0.0], tau_high[:-1]])
    return _left(pair, high, low, below)


class _UniformTau(lemma2.Tau):
    def __init__(self, reverse, band, forward=None):
        super().__init__(reverse, Band(1, 1), forward)


def _no_hull(value, beyond=None):
    return value.plus[:, 0], value.minus[:, 0]


def _plus_reversed(value, beyond=None):
    _, lower = _hull(value, beyond)
    return np.minimum.accumulate(value.plus[:, 0], axis=0), lower


def _minus_reversed(value, beyond=None):
    upper, _ = _hull(value, beyond)
    return upper, np.maximum.accumulate(value.minus[:, 0], axis=0)


def _clipped(lattice, up, down):
    value = _payoff(lattice, up, down)
    value.plus[..., -1] = value.plus[..., -2]
    return value


def _no_infinite_loss(forward, reverse, atoms):
    pair = _pair(forward, reverse, atoms)
    object.__setattr__(pair, "infinity", 0.0)
    return pair


def _swapped(forward, reverse, runs, band, **conditions):
    return HistoryProfile(reverse, forward, runs, band, **conditions)


class _TauFromForward(HistoryProfile):
    @property
    def _tau(self):
        return lemma2.Tau(self.forward, self.band)


class _LargestForgotten(HistoryProfile):
    @property
    def _law(self):
        pmf, tail = super()._law
        return (pmf[:-1] if len(pmf) > 2 else pmf), tail


class _FirstCellOnly(HistoryProfile):
    def _payoff(self, pair, lattice, cells):
        return super()._payoff(pair, lattice, cells)[:1]

    @property
    def cells(self):
        return np.linspace(0.0, 1.0, 33)


def _one_more_from_prior(*arguments, first_from_prior, **conditions):
    return HistoryProfile(*arguments, first_from_prior=first_from_prior + 1, **conditions)


def _calls_t_unknown(*arguments, knows_runs, **conditions):
    return HistoryProfile(*arguments, knows_runs=False, **conditions)


# name: (module, attribute, replacement), or what stands in for HistoryProfile. Some show on random
# worlds; the others need a world made for them, or an oracle for the part of the theorem that they break.
MUTANTS: dict[str, object] = {
    "kills without τ": (theorem_h, "_left", _without_tau),
    "kills only where forced": (theorem_h, "_left", _only_where_forced),
    "kills from the upper tail": (theorem_h, "_left", _upper_tail),
    "cells the wrong way round": (theorem_h, "_left", _wrong_way_round),
    "τ without the band": (theorem_h, "Tau", _UniformTau),
    "τ from the wrong direction": _TauFromForward,
    "winner without the band": (theorem_h, "corners", lambda band: [(1.0, 1.0, 1.0)]),
    "only the middle corner": (theorem_h, "corners", lambda band: [(*_corners(band)[len(_corners(band)) // 2][:2], 1)]),
    "positive part of the hull reversed": (theorem_h, "_hull", _plus_reversed),
    "negative part of the hull reversed": (theorem_h, "_hull", _minus_reversed),
    "edges clipped instead of absorbed": (theorem_h, "payoff", _clipped),
    "infinite loss dropped": (theorem_h, "lattice_pair", _no_infinite_loss),
    "directions exchanged": _swapped,
    "largest T forgotten": _LargestForgotten,
    "v = 0 only": _FirstCellOnly,
    "first run not from the prior": _one_more_from_prior,
    "T visible": _calls_t_unknown,
}
NO_HULL = (theorem_h, "_hull", _no_hull)
