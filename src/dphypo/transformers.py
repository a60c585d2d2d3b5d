"""From a ``Trainer`` of transformers to a mechanism, and a release back into the ``Trainer``.

What a ``Trainer`` declares is taken over: model, data set, collator, learning rate, batch, epochs, optimiser, schedule
and precision. What cannot be private is refused, all of it in one message. Records are padded to a public length, since
the length of a record is private.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, pad

from dphypo import _validate
from dphypo.torch import DPSGD, PrivateLoss
from dphypo.torch import columns as torch_columns
from dphypo.torch import data as torch_data
from dphypo.torch.engine.optimisers import known
from dphypo.training.cost import CALIBRATE, batch_size
from dphypo.training.scores import scoring_share
from dphypo.training.split import Origin, split_by_hash

if TYPE_CHECKING:
    from dphypo.search import Release

_IGNORED = -100  # the label of positions that count for nothing, in all of transformers
_TOKENS = ("ForCausalLM", "LMHeadModel", "ForTokenClassification")


def from_trainer(trainer: Any = None, *, max_length: int | None = None, **more: Any) -> DPSGD:
    """A mechanism that trains what a ``Trainer`` would train, privately; nothing is trained yet.

    Weights that the model has now are assumed to be public, as pretrained ones are. ``gradient_accumulation_steps``
    becomes ``physical_batch_size``: a batch is processed in pieces. ``max_grad_norm`` becomes the clipping norm of a
    record's gradient. Seeds, checkpoints and logging of the ``Trainer`` are not used; :func:`log_to` logs runs.

    Args:
        trainer: a ``transformers.Trainer`` that has not been trained. Or give what it is made of as ``model`` or
            ``model_init``, ``args``, ``train_dataset``, ``data_collator`` and so on.
        max_length: a public number of tokens: longer records are cut, shorter ones padded. Needed unless all records
            have one length.
        more: further arguments of :class:`dphypo.torch.DPSGD`, which come first: ``score`` (by default
            "accuracy" for a classifier, "perplexity" for a language model), ``model=lambda rank: ...`` to search over
            what builds the model, ``records``, ``loss``, ``example`` for a data set that declares no features.
    """
    if trainer is None:
        from transformers import Trainer

        names = [name for name in inspect.signature(Trainer).parameters if name in more]
        trainer = Trainer(**{name: more.pop(name) for name in names})
    _check_is_trainer(trainer)
    if max_length is not None:
        _validate.integer(at_least=1, max_length=max_length)
    args, model, dataset = trainer.args, trainer.model, trainer.train_dataset
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    taken = torch_columns.taken_by(model, None) if args.remove_unused_columns else None
    declared = getattr(dataset, "features", None) or {}
    features = {name: one for name, one in declared.items() if taken is None or name in taken}
    tokens = type(inner).__name__.endswith(_TOKENS)
    problems = _problems(trainer)
    if _encodes_no_text(trainer.data_collator) and "collate" not in more:
        problems += _column_problems(declared, taken, labelled=not tokens)
    if "loss" not in more and (loss := _loss(inner, args)) is not None:
        more["loss"] = loss
    elif "loss" not in more:
        problems.append(f"{type(inner).__name__}: its loss is not known. Give loss=, one value per record")
    if max_length is None and any(torch_columns.length(one) == -1 for one in features.values()):
        problems.append("records differ in length, which is private. Give max_length=128, a public number of tokens")
    if "example" not in more and not features:
        problems.append("the data set declares no features. Give example=, one made-up record as the data set gives it")
    if "score" not in more and not tokens and not isinstance(more.get("loss"), nn.CrossEntropyLoss):
        problems.append("runs are not ranked by accuracy here. Give score=, such as a PrivateLoss(bound=...)")
    if problems:
        listed = "\n".join(f"  {one}" for one in problems)
        raise ValueError(f"this Trainer cannot be made private as it is:\n{listed}")
    given: dict[str, Any] = {**_taken_over(trainer), "collate": _collator(trainer, taken, max_length), "data": dataset}
    if "example" not in more:
        length = max_length or torch_columns.LENGTH
        given["example"] = {name: torch_columns.made_up(one, length) for name, one in features.items()}
    given["model"] = trainer.model_init or partial(_same, copy.deepcopy(model).cpu())
    given |= more
    if tokens and "score" not in more:
        given |= _perplexity(given, inner)
    return DPSGD(**{"score": "accuracy", **given})


def put_back(release: Release, trainer: Any) -> None:
    """Give the ``Trainer`` the released model: ``evaluate``, ``predict``, ``save_model`` and ``push_to_hub`` use it.

    ``save_model`` writes the adapter alone if the model has one.
    """
    _check_is_trainer(trainer)
    trainer.model = trainer.model_wrapped = release.model.to(trainer.args.device)


def log_to(trainer: Any) -> Callable[[Any], None]:
    """For ``tune(on_run=log_to(trainer))``: callbacks of the ``Trainer`` that log are given every published run."""

    def log(row: Any) -> None:
        numbers = {name: value for name, value in row.params.items() if isinstance(value, int | float)}
        trainer.state.global_step += 1
        trainer.log({**numbers, **({} if row.score is None else {"score": row.score})})

    return log


def _check_is_trainer(trainer: Any) -> None:
    if not all(hasattr(trainer, name) for name in ("args", "model", "train_dataset")):
        raise _validate.fail("trainer", type(trainer).__name__, "give a transformers.Trainer")


def _same(model: nn.Module) -> nn.Module:
    return model


def _problems(trainer: Any) -> list[str]:
    """The settings that cannot be private, or cannot be taken over, each with its remedy."""
    args = trainer.args
    sampling = str(getattr(args, "train_sampling_strategy", "random"))
    listed = {
        "train_dataset: there is none. Give the private records": trainer.train_dataset is None,
        "train_dataset: it has no length, as a stream has none. Give a data set that is read by index": (
            trainer.train_dataset is not None and not hasattr(trainer.train_dataset, "__len__")
        ),
        "the Trainer has been trained, without noise: its weights hold records. Create a new one": (
            trainer.state.global_step > 0
        ),
        f"eval_strategy={_value(args.eval_strategy)!r}: scores during training are not accounted for. Use "
        "eval_strategy='no'; runs are scored privately, and trainer.evaluate() takes public records after put_back": (
            _value(args.eval_strategy) != "no"
        ),
        "load_best_model_at_end: which checkpoint is best depends on the records. Leave it out; tune selects runs": (
            args.load_best_model_at_end
        ),
        "group_by_length: batches would depend on the lengths of records. Leave it out; batches are Poisson samples": (
            getattr(args, "group_by_length", False) or "length" in sampling
        ),
        "gradient_checkpointing: it hides layers from per-record gradients. Use gradient_accumulation_steps": (
            args.gradient_checkpointing
        ),
        "fp16: gradients would overflow by record. Use bf16=True": args.fp16,
        "auto_find_batch_size: the batch would be chosen while records are read. Give per_device_train_batch_size": (
            args.auto_find_batch_size
        ),
        "neftune_noise_alpha: it is a hook of the Trainer's loop, which is not used. Leave it out": (
            args.neftune_noise_alpha is not None
        ),
        "deepspeed, fsdp, several processes: start one, and use tune(..., devices='all')": bool(
            args.deepspeed or args.fsdp or args.world_size > 1
        ),
        f"optim={_value(args.optim)!r}: give one of PyTorch's, such as optim='adamw_torch' or 'sgd'": (
            _optimizer(args) not in known()
        ),
        "optimizers=: every run builds its own optimiser. Name it with TrainingArguments(optim=...)": (
            trainer.optimizer is not None or trainer.lr_scheduler is not None
        ),
        f"lr_scheduler_type={_value(args.lr_scheduler_type)!r}: give 'constant', 'linear' or 'cosine', or a function "
        "as schedule=": _value(args.lr_scheduler_type).partition("_")[0] not in ("constant", "linear", "cosine"),
        "compute_loss_func: it averages over a batch. Give loss=, a function that returns one value per record": (
            trainer.compute_loss_func is not None
        ),
        "the collator masks tokens at random (mlm=True): a record must read the same twice": (
            getattr(trainer.data_collator, "mlm", False)
        ),
        "weights below float32: load the model with dtype=torch.float32, and use bf16=True": any(
            one.requires_grad and one.dtype in (torch.float16, torch.bfloat16) for one in trainer.model.parameters()
        ),
    }
    for callback in trainer.callback_handler.callbacks:
        kind = type(callback)
        if kind.__name__ == "EarlyStoppingCallback" or not kind.__module__.startswith("transformers."):
            name = kind.__name__
            text = f"{name}: it acts during training, on what is private. Use trainer.remove_callback({name}); "
            listed[f"{text}tune(on_run=log_to(trainer)) logs the runs"] = True
    return [text for text, found in listed.items() if found]


def _encodes_no_text(collator: Any) -> bool:
    """Whether a collator is one of transformers' own, which expect numbers."""
    return str(getattr(collator, "__module__", "")).startswith("transformers.")


def _column_problems(declared: Mapping[str, Any], taken: frozenset[str] | None, *, labelled: bool) -> Iterator[str]:
    """What is wrong with the columns that a data set declares, each with its remedy."""
    for name, one in declared.items():
        if (taken is None or name in taken) and getattr(one, "dtype", None) in ("string", "large_string"):
            yield f"column {name!r} is text. Encode it as numbers, from public knowledge"
    known = ", ".join(map(repr, declared))
    if declared and "input_ids" in (taken or ()) and "input_ids" not in declared:
        yield f"the data set has no column 'input_ids', only {known}. Tokenise it first"
    if declared and labelled and not torch_columns.LABELS & declared.keys():
        yield f"the data set has no column 'label', only {known}. Rename the one that holds the labels"


def _value(option: Any) -> str:
    return str(getattr(option, "value", option))


def _optimizer(args: Any) -> str:
    """The name of the optimiser; AdamW without weight decay is Adam."""
    name = _value(args.optim).partition("_")[0]
    return "adam" if name == "adamw" and not args.weight_decay else name


def _taken_over(trainer: Any) -> dict[str, Any]:
    args, records = trainer.args, len(trainer.train_dataset)
    size = min(args.train_batch_size * args.gradient_accumulation_steps, records)
    steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * records / size)
    if size < batch_size(records) / 4:
        _validate.warn(
            f"a batch has {size} records: larger ones learn more with DP-SGD, such as {batch_size(records)} here. Give "
            "per_device_train_batch_size or gradient_accumulation_steps"
        )
    warmup = float(getattr(args, "warmup_steps", 0) or 0)
    warmup = warmup if warmup < 1 else min(warmup / steps, 0.99)
    warmup = warmup or float(getattr(args, "warmup_ratio", 0) or 0)
    options: dict[str, Any] = {"weight_decay": args.weight_decay}
    if _optimizer(args).startswith("adam"):
        options |= {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
    return {
        "batch_size": size,
        "epochs": steps * size / records,
        "learning_rate": args.learning_rate,
        "max_grad_norm": args.max_grad_norm or 1.0,
        "optimizer": _optimizer(args),
        "fixed": options,
        "schedule": (_value(args.lr_scheduler_type).partition("_")[0], warmup),
        "physical_batch_size": args.train_batch_size if args.gradient_accumulation_steps > 1 else None,
        "autocast": "bfloat16" if args.bf16 else None,
        "workers": args.dataloader_num_workers,
        "device": "cpu" if args.use_cpu else None,
    }


class TokenLoss(nn.Module):
    """The mean cross entropy of a record's tokens; those with the label −100 count for nothing.

    >>> logits, labels = torch.zeros(2, 3, 4), torch.tensor([[1, 2, 3], [1, 2, -100]])
    >>> TokenLoss(shift=True)(logits, labels)
    tensor([1.3863, 1.3863])
    """

    ignore_index = _IGNORED

    def __init__(self, *, shift: bool) -> None:
        super().__init__()
        self.shift = shift

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.shift:
            logits, labels = logits[:, :-1], labels[:, 1:]
        each = cross_entropy(logits.mT, labels, reduction="none", ignore_index=_IGNORED)
        return each.sum(1) / (labels != _IGNORED).sum(1).clamp(min=1)


def _loss(model: nn.Module, args: Any) -> Callable[..., Any] | None:
    """The loss that the model would compute, for each record by itself; None if that is not known."""
    name, config = type(model).__name__, getattr(model, "config", None)
    if name.endswith(_TOKENS):
        return TokenLoss(shift=not name.endswith("ForTokenClassification"))
    if not name.endswith("Classification"):
        return None
    kind = getattr(config, "problem_type", None)
    if kind == "multi_label_classification":
        return nn.BCEWithLogitsLoss()
    if kind == "regression" or (kind is None and getattr(config, "num_labels", 2) == 1):
        return _squared_error
    return nn.CrossEntropyLoss(label_smoothing=args.label_smoothing_factor)


def _squared_error(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (logits.reshape(labels.shape) - labels).square().reshape(len(labels), -1).mean(1)


def _perplexity(given: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
    """Records set apart by a hash, and the score on them: tokens are no classes of records."""
    how = {name: given[name] for name in ("example", "collate", "workers")}
    records: Any = torch_data.as_records(given["data"], **how)
    size = given.get("records") or len(given["data"])
    share, scoring = scoring_share(size)
    parts = split_by_hash(given["data"], share=share, workers=given["workers"])
    train, held_out = (replace(records, dataset=part, origin=Origin.of(part)) for part in parts)
    config: Any = model.config
    classes = config.vocab_size if given["loss"].shift else config.num_labels
    measure = "perplexity" if given["loss"].shift else "loss"
    options: dict[str, Any] = {"bound": 2 * math.log(max(2, classes)), "records": scoring, "measure": measure}
    score = PrivateLoss(held_out, CALIBRATE, loss=given["loss"], **options)
    return {"data": train, "records": max(1, size - scoring), "score": score, "example": None, "collate": None}


@dataclass(frozen=True)
class _Padded:
    """The collator of a ``Trainer``, whose batches it brings to one length."""

    collator: Callable[[list[Any]], Any]
    taken: frozenset[str] | None
    length: int | None
    padding: int
    left: bool
    masked: bool

    def __call__(self, records: list[Any]) -> dict[str, Any]:
        found = dict(self.collator([torch_columns.only(one, self.taken) for one in records]))
        for name in {"label", "label_ids"} & found.keys():
            found["labels"] = found.pop(name)
        ids = found.get("input_ids")
        if ids is None or self.length is None:
            return found
        if self.masked:
            found.setdefault("attention_mask", torch.ones_like(ids))
        width = ids.shape[1]
        return {name: self._fit(name, one) if one.shape[1:2] == (width,) else one for name, one in found.items()}

    def _fit(self, name: str, values: torch.Tensor) -> torch.Tensor:
        assert self.length is not None
        kept = values[:, : self.length]
        more = self.length - kept.shape[1]
        fill = {"input_ids": self.padding, "labels": _IGNORED, "special_tokens_mask": 1}.get(name, 0)
        return pad(kept, (more, 0) if self.left else (0, more), value=fill)


def _collator(trainer: Any, taken: frozenset[str] | None, length: int | None) -> _Padded:
    reader, config = trainer.processing_class, getattr(trainer.model, "config", None)
    padding = getattr(reader, "pad_token_id", None)
    padding = getattr(config, "pad_token_id", None) if padding is None else padding
    left = getattr(reader, "padding_side", "right") == "left"
    return _Padded(trainer.data_collator, taken, length, padding or 0, left, taken is None or "attention_mask" in taken)
