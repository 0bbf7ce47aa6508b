"""Ways to damage a journal: bytes, pages, rows, tables, and something else in its place."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np

Damage = Callable[[Path, np.random.Generator], None]
PAGE = 4096


def flip_a_bit(path, rng):
    _change(path, rng, lambda byte: byte ^ (1 << int(rng.integers(8))))


def change_64_bytes(path, rng):
    data = bytearray(path.read_bytes())
    start = int(rng.integers(max(1, len(data) - 64)))
    data[start : start + 64] = rng.bytes(64)
    path.write_bytes(data)


def change_a_header(path, rng):
    data = bytearray(path.read_bytes())
    page = int(rng.integers(len(data) // PAGE)) * PAGE
    data[page + int(rng.integers(108 if page == 0 else 8))] = int(rng.integers(256))
    path.write_bytes(data)


def zero_a_page(path, rng):
    data = bytearray(path.read_bytes())
    page = int(rng.integers(len(data) // PAGE)) * PAGE
    data[page : page + PAGE] = bytes(PAGE)
    path.write_bytes(data)


def repeat_a_page(path, rng):
    data = bytearray(path.read_bytes())
    source, target = (int(rng.integers(len(data) // PAGE)) * PAGE for _ in range(2))
    data[target : target + PAGE] = data[source : source + PAGE]
    path.write_bytes(data)


def cut_the_end_off(path, rng):
    data = path.read_bytes()
    path.write_bytes(data[: int(rng.integers(1, len(data)))])


def cut_pages_off(path, rng):
    data = path.read_bytes()
    path.write_bytes(data[: int(rng.integers(1, len(data) // PAGE)) * PAGE])


def empty(path, rng):
    path.write_bytes(b"")


def make_it_text(path, rng):
    path.write_text("these are notes, no journal\n" * int(rng.integers(1, 300)))


def make_it_noise(path, rng):
    path.write_bytes(rng.bytes(int(rng.integers(1, 9000))))


def put_a_directory_there(path, rng):
    path.unlink()
    path.mkdir()


def make_it_another_database(path, rng):
    path.unlink()
    _sql(path, "CREATE TABLE t (x)", "INSERT INTO t VALUES (1)")


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


def write_invalid_utf8(path, rng):
    table, rowid = _row(path, rng)
    column = _column(path, table, rng, "TEXT")
    _sql(path, f"UPDATE {table} SET {column} = CAST(X'FFFE80C3' AS TEXT) WHERE rowid = {rowid}")


def write_half_json(path, rng):
    table, rowid = _row(path, rng)
    column = _column(path, table, rng, "TEXT")
    _sql(path, f"UPDATE {table} SET {column} = '{{\"names\": [' WHERE rowid = {rowid}")


def write_nested_json(path, rng):
    _sql(path, f"UPDATE meta SET value = '{'[' * 100_000}' WHERE rowid = {_row(path, rng, 'meta')[1]}")


def write_a_list(path, rng):
    _sql(path, f"UPDATE meta SET value = '[1, 2]' WHERE rowid = {_row(path, rng, 'meta')[1]}")


def write_a_huge_integer(path, rng):
    table, rowid = _row(path, rng)
    column = _column(path, table, rng, "INTEGER")
    if column:
        _sql(path, f"UPDATE {table} SET {column} = {2**63 - 1} WHERE rowid = {rowid}")
    else:
        column = _column(path, table, rng, "TEXT")
        _sql(path, f"UPDATE {table} SET {column} = '{'9' * 5000}' WHERE rowid = {rowid}")


def write_other_bytes(path, rng):
    table, rowid = _row(path, rng)
    column, value = _column(path, table, rng, "BLOB"), "X'050000007B7D'"
    if not column:
        column, value = _column(path, table, rng, "TEXT"), "'changed'"  # '' may be what it was
    _sql(path, f"UPDATE {table} SET {column} = {value} WHERE rowid = {rowid}")


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


IN_BYTES: tuple[Damage, ...] = (
    flip_a_bit, change_64_bytes, change_a_header, zero_a_page, repeat_a_page, cut_the_end_off, cut_pages_off,
)  # fmt: skip
IN_ITS_PLACE: tuple[Damage, ...] = (
    empty, make_it_text, make_it_noise, put_a_directory_there, make_it_another_database,
)  # fmt: skip
IN_ROWS: tuple[Damage, ...] = (
    drop_a_table, rename_a_column, drop_an_index, delete_a_row, write_invalid_utf8, write_half_json,
    write_nested_json, write_a_list, write_a_huge_integer, write_other_bytes, swap_two_rows,
)  # fmt: skip
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


def _change(path, rng, to):
    data = bytearray(path.read_bytes())
    place = int(rng.integers(len(data)))
    data[place] = to(data[place])
    path.write_bytes(data)


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
    names = [n for n, k in _columns(path, table) if kind in {None, k} and n not in {"id", "crc"} | looked_up]
    return str(rng.choice(names)) if names else ""


def _row(path, rng, table=None):
    tables = [table] if table else [t for t in _tables(path) if _query(path, f"SELECT 1 FROM {t}")]
    name = str(rng.choice(tables))
    rows = [int(str(r[0])) for r in _query(path, f"SELECT rowid FROM {name}")]
    return name, int(rng.choice(rows))
