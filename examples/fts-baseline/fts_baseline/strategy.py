"""The algorithms that are compared, by name."""

from functools import partial

from fbo_flower.strategies import FTS, RandomSearch, ThompsonSampling

STRATEGIES = {
    "fts": FTS,  # the paper's: the message of one random agent, used with probability 1/sqrt(t)
    "fts-portfolio": partial(FTS, advice="portfolio"),
    "ts": ThompsonSampling,  # each node alone
    "random": RandomSearch,
}
