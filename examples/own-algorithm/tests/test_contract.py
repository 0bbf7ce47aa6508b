"""The contract of fbo-flower; it needs fbo-flower's `tests/helpers` on the PYTHONPATH, else it is skipped."""

import pytest
from own_algorithm.gossip import Gossip

contract = pytest.importorskip("contract", reason="tests/helpers of fbo-flower is not on the path")


class TestContract(contract.AlgorithmContract):
    reports_values = True  # best points are sent, by design

    def make(self):
        return Gossip()
