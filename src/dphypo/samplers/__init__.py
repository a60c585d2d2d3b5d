"""Search rules: each turns the finished runs into weights on candidates. The band makes any of them private."""

from ._history import History as History
from ._sampler import Sampler as Sampler
from ._uniform import Uniform as Uniform
