"""The choice of a design on a public proxy: a small grid, every design judged by its exact expectation there."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dphypo import _validate
from dphypo.mechanisms import Mechanism
from dphypo.planning.choice import UNFIT, Choice
from dphypo.planning.costs import Costs
from dphypo.planning.design import Design, cheaper, refuse_uncut
from dphypo.planning.grid import possible
from dphypo.planning.judge import Judge
from dphypo.planning.landscape import Landscape
from dphypo.space import Space


def choose_design(
    space: Space,
    mechanism: Mechanism,
    *,
    compute: float,
    epsilon: float,
    delta: float,
    proxy: str | Landscape = "mnist",
    designs: Iterable[Design] | None = None,
    cheap: Callable[[float], Mechanism] | None = None,
) -> Choice:
    """The design of a search in two stages that does best on a public proxy, beside uniform search.

    Each design is calibrated, approximately, with the events of the user's own mechanism; the proxy is read at the
    noise multipliers found, and what the search would reach on it is computed exactly, without simulation.

    **The proxy is read by the fraction and the noise multiplier alone**: its batches, its number of steps and its
    hyperparameters stay what they were, whatever yours are. Those that come with the library are of DP-SGD with batches
    of 256 of 60 000 records and 2 344 steps ("mnist") or of 256 of 50 000 and 1 954 steps ("cifar10"), over the
    learning rate and the clipping norm, with score noise 0.02; and of federated training with 300 of 3 000 clients
    expected a round and 100 rounds ("federated"), where scores are minus a loss, with score noise 0.05. Scores cost
    what the mechanism states, nothing where it has no ``score_event``; they are as noisy as the proxy's either way. The
    best of many designs is the best on this proxy.

    Only public values go in, so choosing costs no privacy. **The proxy must be public**: a landscape measured on the
    private data would cost what measuring it does, and so would choosing a design by what it finds there. How well the
    choice suits the private task is as good as the likeness of the proxy.

    Args:
        space, mechanism, compute, epsilon, delta: as for :meth:`dphypo.Design.stages`.
        proxy: a :class:`dphypo.Landscape`, or the name of one that comes with the library ("mnist", "cifar10",
            "federated").
        designs: the designs to choose from; by default the default design, and a grid over the fractions of the proxy,
            shares of compute and of ε, spreads and floors; without those whose cheap runs, of whole steps, would be
            longer than they say, where the mechanism has ``steps``.
        cheap: a run of the first stage as a function of the fraction, where ``mechanism.at(fraction=...)`` will not do.

    Returns:
        A :class:`dphypo.Choice`, which prints as a table: ``design``, the best one, to call
        :meth:`dphypo.Design.stages` of; ``expected``, what it reaches on the proxy; ``pays``, whether that is more than
        the best uniform search, and ``margin``, by how much; ``uniform``, the row of that search; ``staged``,
        ``uniform_searches`` and ``table``, all rows, best first; ``unjudged``, designs that could not be judged and
        why; ``to_dict()``.

    >>> from dphypo.planning import Training
    >>> train = Training(records=20_000, batch_size=2_000, epochs=1)
    >>> choice = choose_design(Space({"lr": [0.1, 1.0]}), train, compute=10, epsilon=2, delta=1e-5, designs=[Design()])
    >>> choice.pays, choice.design == Design()
    (True, True)
    """
    landscape = Landscape.load(proxy) if isinstance(proxy, str) else proxy
    given: object = landscape
    if not isinstance(given, Landscape):
        raise _validate.fail("proxy", given, "give a dphypo.Landscape, or the name of one that comes with the library")
    if isinstance(cheap, Mechanism):
        raise _validate.fail("cheap", cheap, "give a function of the fraction that returns a mechanism")
    epsilon, delta = _validate.positive(epsilon=epsilon), _validate.within(0.0, 1.0, delta=delta)
    costs = Costs(space, lambda fraction: _run(mechanism, fraction, cheap), delta)
    judge = Judge(landscape, costs, _validate.positive(compute=compute), epsilon)
    if designs is None:
        wanted = possible(landscape, compute, costs)
        left_out = [] if Design() in wanted else [(Design(), UNFIT)]
    else:
        wanted, left_out = _checked(designs), []
    made = {fraction: costs.mechanism(fraction) for fraction in (1.0, *(design.fraction for design in wanted))}
    if cheap is None:
        for fraction, run in made.items():
            refuse_uncut(mechanism, run, fraction)
    uniform, staged = judge.uniform(), judge.staged(wanted)
    return Choice(
        landscape,
        compute,
        epsilon,
        delta,
        tuple(staged),
        tuple(uniform),
        unjudged=(*left_out, *judge.unjudged),
        public_scores=all(run.score_event is None for run in made.values()),
    )


def _checked(designs: Iterable[Design]) -> list[Design]:
    wanted = list(designs) if isinstance(designs, Iterable) else []
    if not wanted or not all(isinstance(design, Design) for design in wanted):
        raise _validate.fail("designs", designs, "give a list of dphypo.Design")
    return wanted


def _run(mechanism: Mechanism, fraction: float, cheap: Callable[[float], Mechanism] | None) -> Mechanism:
    made = mechanism if fraction == 1.0 else cheaper(mechanism, fraction) if cheap is None else cheap(fraction)
    if not isinstance(made, Mechanism) or not hasattr(made, "at"):
        name = "mechanism" if fraction == 1.0 or cheap is None else "what cheap returns"
        raise _validate.fail(name, made, "give a mechanism with a method at(noise_multiplier=...)")
    return made
