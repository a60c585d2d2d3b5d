"""``dphypo design``: designs of two stages, on a public proxy. ``dphypo plan`` compares stages with other ways."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from dphypo.cli import options as o
from dphypo.cli import ranges


def design(
    compute: o.Compute,
    epsilon: o.Epsilon,
    records: o.Records = None,
    batch_size: o.BatchSize = None,
    epochs: o.Epochs = None,
    sampling_rate: o.SamplingRate = None,
    steps: o.Steps = None,
    delta: o.Delta = 1e-5,
    proxy: Annotated[o.Proxy, typer.Option(case_sensitive=False, help="The public landscape.")] = o.Proxy.MNIST,
    as_json: o.AsJson = False,
    all_rows: o.AllRows = False,
) -> None:
    """Whether a cheap first stage pays, and which: designs judged on a public proxy. Takes about a minute.

    The proxy is read by fraction and noise multiplier alone, whatever your batches, steps and hyperparameters are.
    mnist and cifar10 are accuracies of DP-SGD with batches of 256 of 60 000 records and 2 344 steps, or of 256 of
    50 000 and 1 954 steps, over learning rate and clipping norm, with score noise 0.02. federated is of training with
    300 of 3 000 clients expected a round and 100 rounds; scores are minus a loss, with score noise 0.05.

    Scores are taken to cost nothing: they look at public records. The best of many designs is the best on this proxy.
    """
    ranges.check(locals())
    from dphypo.accounting import plain
    from dphypo.planning import NoDesignError, Training, choose_design
    from dphypo.solving import solving
    from dphypo.space import Space

    if all_rows and not as_json:
        raise typer.BadParameter("--all applies to --json alone: leave it out, or give both")
    space = Space({"any": [0.0, 1.0]})  # what a run costs does not depend on what is tuned
    try:
        train = Training(**o.whole_records(sampling_rate, steps, records, batch_size, epochs))
        with solving():
            choice = choose_design(space, train, compute=compute, epsilon=epsilon, delta=delta, proxy=proxy.value)
    except NoDesignError as error:
        raise ValueError(o.in_options(f"{error.reason}: {error.remedy}")) from None
    except ValueError as error:
        raise ValueError(o.in_options(str(error))) from None
    print(json.dumps(plain(choice.to_dict(None if all_rows else 10)), indent=2) if as_json else choice)
