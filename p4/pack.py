#!/usr/bin/env python3
"""Packs the program for a chip into one file, as the chip's P4Runtime server loads it: `device_config` of a controller's target.

usage: pack.py SERVER CHIP FILE     SERVER is stratum or bf_switchd, CHIP is tofino or tofino2
"""

import gzip
import pathlib
import sys

PROGRAM = b"thc"
PIPELINE = b"pipe"
PIPES = bytes([0, 1, 2, 3])


def varint(number):
    """A number as Protocol Buffers write one."""
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)


def field(number, contents):
    """A field of bytes."""
    return varint(number << 3 | 2) + varint(len(contents)) + contents


def stratum(binary, context, schema):
    """Stratum's message BfPipelineConfig (stratum/hal/lib/barefoot/bf.proto)."""
    profile = field(1, PIPELINE) + field(2, context) + field(3, binary) + field(4, PIPES)
    return field(1, PROGRAM) + field(2, schema) + field(3, profile)


def bf_switchd(binary, context, schema):
    """Each part behind its length (open-p4studio's pkgsrc/bf-drivers/src/pi/pi_imp.c)."""
    parts = [PROGRAM, binary, context, PIPELINE, schema]
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


SERVERS = {"stratum": stratum, "bf_switchd": bf_switchd}

if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in SERVERS or sys.argv[2] not in ("tofino", "tofino2"):
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    _, server, chip, file = sys.argv
    folder = pathlib.Path(__file__).parent / "build/tofino" / chip
    try:
        binary, context, schema = ((folder / name).read_bytes() for name in ("tofino.bin", "context.json.gz", "bfrt.json.gz"))
        pathlib.Path(file).write_bytes(SERVERS[server](binary, gzip.decompress(context), gzip.decompress(schema)))
    except FileNotFoundError as error:
        sys.exit(f"pack.py: there is no {error.filename}: `make p4`, with p4c-barefoot and bfas on the PATH, makes the program of a chip")
    except OSError as error:
        sys.exit(f"pack.py: {error}")
