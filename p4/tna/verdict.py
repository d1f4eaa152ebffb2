#!/usr/bin/env python3
"""Prints the entries of the table `verdict` of membership.p4, which has too many columns to be written by hand: `make p4` keeps them in
generated/verdict.p4. A row names the columns that it asks for; all others are wildcards. The topmost row that matches decides."""

COLUMNS = (
    "own_port trip ours udp udp_port bad_checksum length_off too_short version kind job_known cookie_off member_known address_off udp_off "
    "port_off member_port workers_off length_known data_room norm_room table_known half_length half rack racks_off"
).split()

# What all checks before a check ask for, in the order of P7.
CARRIER = dict(own_port=0, trip="false", ours=1, udp="true", udp_port="THC_UDP_PORT", bad_checksum="false", length_off=20, too_short=0)
VERSION = dict(CARRIER, version="VERSION")
JOB = dict(VERSION, job_known=1)
COOKIE = dict(JOB, cookie_off=0)
MEMBER = dict(COOKIE, member_known=1)
SOURCE = dict(MEMBER, address_off=0, udp_off=0)
# A member is at the port of its entry, or, if that is 0, at any.
AT_PORT = [dict(SOURCE, port_off=0), dict(SOURCE, member_port=0)]
# What a root sends reaches a rack's members if its number of workers is that of racks.
OF_ROOT = dict(SOURCE, rack=1, racks_off=0)

rows = []


def row(action, given={}, **columns):
    """Appends a row."""
    columns = {**given, **columns}
    assert columns.keys() <= set(COLUMNS), columns
    rows.append(f"({', '.join(str(columns.get(name, '_')) for name in COLUMNS)}): {action};")


def from_member(action, **columns):
    """Appends the rows of a check of what members send: workers and all checks before are right."""
    for at_port in AT_PORT:
        row(action, at_port, workers_off=0, **columns)


# Nobody's packet is let into a pass, nor is what comes back by a port that of a host.
row("refuse_carrier(DROP_CARRIER)", own_port=0, trip="true")
row("refuse_carrier(DROP_CARRIER)", own_port=1, trip="false")
PASS = dict(own_port=1, trip="true")
row("back()", PASS, kind="KIND_DATA", job_known=1, cookie_off=0, table_known=1)
row("refuse_carrier(DROP_PASS)", PASS, kind="KIND_DATA")
row("back()", PASS, job_known=1, cookie_off=0)
row("refuse_carrier(DROP_PASS)", PASS)
row("forward()", own_port=0, trip="false", ours=0)

# P7.9: the table says how long DATA is, so the job must have it.
for at_port in AT_PORT:
    data = dict(at_port, kind="KIND_DATA", workers_off=0, table_known=1)
    row("refuse(DROP_LENGTH)", data, length_known=0, half=0)
    row("refuse(DROP_LENGTH)", data, half_length=0, half=1)
# P7.10 room, P7.11 table: RAW and NORM name none.
from_member("refuse(DROP_SLOT)", kind="KIND_DATA", data_room=0)
from_member("fresh()", kind="KIND_DATA", table_known=1)
from_member("refuse(DROP_TABLE)", kind="KIND_DATA")
for kind, room in [("KIND_RAW", "data_room"), ("KIND_NORM", "norm_room")]:
    from_member("refuse(DROP_SLOT)", kind=kind, length_known=1, **{room: 0})
    from_member("fresh()", kind=kind, length_known=1)
# P7.4 to P7.9.
for kind in ["KIND_DATA", "KIND_RAW", "KIND_NORM"]:
    from_member("refuse(DROP_LENGTH)", kind=kind)
    for at_port in AT_PORT:
        row("refuse(DROP_WORKERS)", at_port, kind=kind)
    row("refuse(DROP_SOURCE)", MEMBER, kind=kind)
    row("refuse(DROP_MEMBER)", COOKIE, kind=kind)
    row("refuse(DROP_COOKIE)", JOB, kind=kind)
    row("refuse_carrier(DROP_JOB)", VERSION, kind=kind)

# P36: in what a root sends only RESULT names a table.
result = dict(OF_ROOT, kind="KIND_RESULT")
row("refuse_root(DROP_SLOT)", result, length_known=1, data_room=0, table_known=1)
row("down()", result, length_known=1, table_known=1)
row("refuse_root(DROP_SLOT)", result, data_room=0, table_known=0)
row("refuse_root(DROP_TABLE)", result, table_known=0)
ROOMS = {
    "KIND_NORM_RESULT": ["norm_room"],
    "KIND_RAW_RESULT": ["data_room"],
    "KIND_STRAGGLER": ["data_room", "norm_room"],
    "KIND_MISMATCH": ["norm_room"],
    "KIND_NUDGE": ["data_room", "norm_room"],
}
for kind, rooms in ROOMS.items():
    row("refuse_root(DROP_SLOT)", OF_ROOT, kind=kind, length_known=1, **dict.fromkeys(rooms, 0))
    row("down()", OF_ROOT, kind=kind, length_known=1)
for kind in ["KIND_NORM_RESULT", "KIND_RESULT", *list(ROOMS)[1:]]:
    row("refuse_root(DROP_LENGTH)", OF_ROOT, kind=kind)
    row("refuse_root(DROP_WORKERS)", SOURCE, kind=kind, rack=1)
    row("refuse_root(DROP_SOURCE)", MEMBER, kind=kind, rack=1)
    row("refuse_root(DROP_SLOT)", COOKIE, kind=kind, rack=1)
    row("refuse_root(DROP_COOKIE)", JOB, kind=kind, rack=1)

# P7.1 to P7.3.
row("refuse_carrier(DROP_KIND)", VERSION)
row("refuse_carrier(DROP_VERSION)", CARRIER)
HERE = dict(own_port=0, trip="false", ours=1)
row("refuse_carrier(DROP_SHORT)", CARRIER, too_short=1)
row("refuse_carrier(DROP_CARRIER)", HERE, udp="true", udp_port="THC_UDP_PORT")
row("nobody()", HERE, udp="true")
row("refuse_carrier(DROP_CARRIER)", HERE)

print("// Made by verdict.py: `make p4`.", *rows, sep="\n")
