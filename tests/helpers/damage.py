"""Ways to damage a journal: bytes, pages, rows, tables, and something else in its place."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np

Damage = Callable[[Path, np.random.Generator], None]
PAGE = 4096


def in_bytes(name, change):
    """Return a way that changes the bytes of a file in place."""

    def way(path, rng):
        change(data := bytearray(path.read_bytes()), rng)
        path.write_bytes(data)

    way.__name__ = name
    return way


def set_bytes(data, start, new):
    data[start : start + len(new)] = new


def page_of(data, rng):
    return int(rng.integers(len(data) // PAGE)) * PAGE


def flip_a_bit(data, rng):
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))


def change_a_header(data, rng):
    page = page_of(data, rng)
    data[page + int(rng.integers(108 if page == 0 else 8))] = int(rng.integers(256))


def repeat_a_page(data, rng):
    source, target = (page_of(data, rng) for _ in range(2))
    set_bytes(data, target, data[source : source + PAGE])


def cut_off(data, length):
    del data[length:]


def put_a_directory_there(path, rng):
    path.unlink()
    path.mkdir()


def make_it_another_database(path, rng):
    path.unlink()
    _sql(path, "CREATE TABLE t (x)", "INSERT INTO t VALUES (1)")


zero_a_page = in_bytes("zero_a_page", lambda data, rng: set_bytes(data, page_of(data, rng), bytes(PAGE)))
empty = in_bytes("empty", lambda data, rng: data.clear())
make_it_text = in_bytes("make_it_text", lambda data, rng: set_bytes(
    data, data.clear() or 0, b"these are notes, no journal\n" * int(rng.integers(1, 300))
))  # fmt: skip
IN_BYTES: tuple[Damage, ...] = (
    in_bytes("flip_a_bit", flip_a_bit),
    in_bytes("change_64_bytes", lambda data, rng: set_bytes(
        data, int(rng.integers(max(1, len(data) - 64))), rng.bytes(64)
    )),
    in_bytes("change_a_header", change_a_header),
    zero_a_page,
    in_bytes("repeat_a_page", repeat_a_page),
    in_bytes("cut_the_end_off", lambda data, rng: cut_off(data, int(rng.integers(1, len(data))))),
    in_bytes("cut_pages_off", lambda data, rng: cut_off(data, page_of(data[PAGE:], rng) + PAGE)),
)  # fmt: skip
IN_ITS_PLACE: tuple[Damage, ...] = (
    empty,
    make_it_text,
    in_bytes("make_it_noise", lambda data, rng: set_bytes(
        data, data.clear() or 0, rng.bytes(int(rng.integers(1, 9000)))
    )),
    put_a_directory_there,
    make_it_another_database,
)  # fmt: skip


def drop_a_table(path, rng):
    _sql(path, f"DROP TABLE {_table(path, rng)}")


def rename_a_column(path, rng):
    table = _table(path, rng)
    _sql(path, f"ALTER TABLE {table} RENAME COLUMN {_column(path, table, rng)} TO other")


def drop_an_index(path, rng):
    # an index of a key cannot be dropped by other means
    of_keys = "DELETE FROM sqlite_master WHERE type = 'index' AND tbl_name <> 'meta'"
    _sql(path, "PRAGMA writable_schema = ON", of_keys)


def delete_a_row(path, rng):
    table, rowid = _row(path, rng)
    _sql(path, f"DELETE FROM {table} WHERE rowid = {rowid}")


def in_a_cell(name, of, /, **values):
    """Return a way that writes into a cell of a table, by the kind of the first column that there is."""

    def way(path, rng):
        table, rowid = _row(path, rng, of)
        for kind, value in values.items():
            if column := _column(path, table, rng, kind):
                _sql(path, f"UPDATE {table} SET {column} = {value} WHERE rowid = {rowid}")
                return

    way.__name__ = name
    return way


def swap_two_rows(path, rng):
    """Swap what two rows hold; their places in the table stay."""
    tables = _tables(path)
    table = "events" if "events" in tables else "evaluations"
    columns = [c for c, _ in _columns(path, table) if c != "id"]
    connection = sqlite3.connect(path)
    rows = connection.execute(f"SELECT id, {', '.join(columns)} FROM {table} ORDER BY id").fetchall()
    first, second = (rows[i] for i in rng.choice(len(rows), 2, replace=False))
    for target, source in ((first, second), (second, first)):
        sets = ", ".join(f"{column} = ?" for column in columns)
        connection.execute(f"UPDATE {table} SET {sets} WHERE id = ?", (*source[1:], target[0]))
    connection.commit()
    connection.close()


IN_ROWS: tuple[Damage, ...] = (
    drop_a_table,
    rename_a_column,
    drop_an_index,
    delete_a_row,
    in_a_cell("write_invalid_utf8", None, TEXT="CAST(X'FFFE80C3' AS TEXT)", BLOB="X'FFFE80C3'"),
    in_a_cell("write_half_json", None, TEXT="'{\"names\": ['", BLOB="CAST('{' AS BLOB)"),
    in_a_cell("write_nested_json", "meta", value=f"'{'[' * 100_000}'"),
    in_a_cell("write_a_list", "meta", value="'[1, 2]'"),
    in_a_cell("write_a_huge_integer", None, INTEGER=f"{2**63 - 1}", TEXT=f"'{'9' * 5000}'", BLOB="X'FF'"),
    in_a_cell("write_other_bytes", None, BLOB="X'050000007B7D'", TEXT="'changed'"),  # '' may be what it was
    swap_two_rows,
)
ALL = IN_BYTES + IN_ITS_PLACE + IN_ROWS


def damage(path, kind, seed):
    """Damage a journal in one way; its side files are gone, as after an orderly end."""
    for suffix in ("-wal", "-shm", ".lock"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    kind(path, np.random.default_rng(seed))


def copy(source, target):
    """Copy a directory of journals to an empty place."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def _sql(path, *statements):
    connection = sqlite3.connect(path)
    try:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    finally:
        connection.close()


def _query(path, statement):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def _tables(path):
    return [str(r[0]) for r in _query(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]


def _table(path, rng):
    return str(rng.choice(_tables(path)))


def _columns(path, table):
    return [(str(r[1]), str(r[2])) for r in _query(path, f"PRAGMA table_info({table})")]


def _column(path, table, rng, kind=None):
    # no storage fault changes these two, because an index repeats them
    looked_up = {"study", "task"} if table == "evaluations" and kind else set()
    names = [
        n for n, k in _columns(path, table) if kind in {None, n, k} and n not in {"id", "crc"} | looked_up
    ]
    return str(rng.choice(names)) if names else ""


def _row(path, rng, table=None):
    tables = [table] if table else [t for t in _tables(path) if _query(path, f"SELECT 1 FROM {t}")]
    name = str(rng.choice(tables))
    rows = [int(str(r[0])) for r in _query(path, f"SELECT rowid FROM {name}")]
    return name, int(rng.choice(rows))
