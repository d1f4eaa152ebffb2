#!/usr/bin/env python3
"""Sums up what the compiler for Tofino says of a program's fit.

usage: fit.py OUTPUT...     folders that p4c-barefoot wrote (with -g --verbose), one per chip

Prints JSON: per chip the compiler's version, the stages, and what all stages together use.
SRAM is counted in blocks of 128 Kib; PHV in bits of the containers that are taken.
"""

import json
import pathlib
import re
import sys

# Of one block.
SRAM_BITS = 1024 * 128


def stages(assembly):
    """How many stages ingress and egress reach over."""
    used = {"ingress": {-1}, "egress": {-1}}
    gress = stage = None
    for line in assembly.splitlines():
        if found := re.match(r"stage (\d+) (ingress|egress):", line):
            stage, gress = int(found[1]), found[2]
        elif gress and re.match(r"  [a-z_]+ .*\d+:$", line):
            used[gress].add(stage)
        elif line and not line.startswith(" ") and not line.startswith("stage"):
            gress = None
    return {gress: max(numbers) + 1 for gress, numbers in used.items()}


def container_bits(report, gress):
    """Bits of packet header vector that are taken, by whole containers."""
    return sum(container["bit_width"] for container in report["containers"] if container["gress"] == gress)


def fit(folder):
    folder = pathlib.Path(folder)
    manifest = json.loads(next(folder.rglob("manifest.json")).read_text())
    report = json.loads(next(folder.rglob("resources.json")).read_text())
    assembly = next(path for path in folder.rglob("*.bfa") if path.is_file()).read_text()
    phv = json.loads(next(folder.rglob("phv.json")).read_text())
    mau = report["resources"]["mau"]
    each = mau["mau_stages"]
    count = lambda part: sum(len(part(stage)) for stage in each)
    sram = count(lambda s: [ram for ram in s["rams"]["srams"] if ram["usages"]])
    tcam = count(lambda s: [cam for cam in s["tcams"]["tcams"] if cam["usages"]])
    stateful = count(lambda s: [alu for alu in s["meter_alus"]["meters"] if alu["usages"]])
    logical = count(lambda s: s["logical_tables"]["ids"])
    return {
        "target": manifest.get("target"),
        "compiler": report["compiler_version"],
        "stages": {"chip": mau["nStages"], **stages(assembly)},
        "sram_blocks": sram,
        "sram_megabits": round(sram * SRAM_BITS / 1e6, 1),
        "map_rams": count(lambda s: s["map_rams"]["maprams"]),
        "tcam_blocks": tcam,
        "stateful_alus": stateful,
        "statistics_alus": count(lambda s: s["statistic_alus"]["stats"]),
        "logical_tables": logical,
        "phv_bits": {gress: container_bits(phv, gress) for gress in ("ingress", "egress")},
    }


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        sys.exit(0 if len(sys.argv) > 1 else 2)
    chips = [fit(folder) for folder in sys.argv[1:]]
    print(json.dumps(chips, indent=2))
    for chip in chips:
        if max(chip["stages"]["ingress"], chip["stages"]["egress"]) > chip["stages"]["chip"]:
            sys.exit(f"fit.py: the program does not fit {chip['target']}: {chip['stages']}")
