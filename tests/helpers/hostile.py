"""Messages as somebody would send them who means harm, or whose disk is failing."""

import struct

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord


def npy(shape, data=b"", descr="'<f8'", fortran=False, version=b"\x01\x00"):
    header = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header + data


JUNK = [
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, -(2**63), 0.0, 1.5, float("nan"), float("inf"), "",
    "0", "{}", "[]", "null", '{"done":true}', "\ud800", "\x00", "weights", "x" * 5000, "[" * 5000,
    b"", b"\x80\x04.", [], [1], [""], [0.5, float("nan")],
]  # fmt: skip


def mutate(content, rng):  # noqa: PLR0912  # one branch per kind of change
    """One random change to a message; returns the message."""
    kind = rng.integers(7)
    record, config = content.get("arrays"), content.get("config")
    if kind == 0 and isinstance(config, ConfigRecord) and config:
        key = list(config)[rng.integers(len(config))]
        value = JUNK[rng.integers(len(JUNK))]
        if value is None:
            config.pop(key)
        else:
            config[key] = value
    elif kind == 1 and isinstance(config, ConfigRecord) and config:
        key = list(config)[rng.integers(len(config))]
        if isinstance(config[key], str) and config[key]:
            text = list(config[key])
            text[rng.integers(len(text))] = chr(rng.integers(32, 0x3000))
            config[key] = "".join(text)
    elif kind in {2, 3, 4} and isinstance(record, ArrayRecord) and record:
        name = list(record)[rng.integers(len(record))]
        old = record[name]
        data = bytearray(old.data)
        if kind == 2 and data:  # flip bytes, mostly in the header
            for _ in range(rng.integers(1, 4)):
                data[rng.integers(min(len(data), 140))] = rng.integers(256)
        elif kind == 3:
            data = data[: rng.integers(len(data) + 1)]
        else:
            shape = tuple(int(n) for n in rng.integers(-2, 5, rng.integers(0, 4)))
            descr = ["'<f8'", "'<i8'", "'|O'", "'<U3'", "'<f2'", "'|b1'", "'<M8[s]'"][rng.integers(7)]
            data = npy(str(shape), bytes(rng.integers(256, size=rng.integers(70), dtype=np.uint8)), descr)
        record[name] = FlowerArray(
            dtype=old.dtype,
            shape=old.shape,
            stype="x" if rng.integers(20) == 0 else "numpy.ndarray",
            data=bytes(data),
        )
    elif kind == 5 and isinstance(record, ArrayRecord) and record:
        name = list(record)[rng.integers(len(record))]
        array = record.pop(name)
        if rng.integers(2):
            record[["weights", "disclosed.points", "x", "", ","][rng.integers(5)]] = array
        if rng.integers(2) and isinstance(config, ConfigRecord):
            config["names"] = ",".join(record)
    elif kind == 6 and rng.integers(4) == 0:
        key = ["arrays", "config", "more"][rng.integers(3)]
        kinds = [ArrayRecord(), ConfigRecord(), MetricRecord({"a": [1.0]}), ConfigRecord({"schema": 1})]
        content[key] = kinds[rng.integers(4)]
    return content
