#!/usr/bin/env python3
"""Sums up what the compiler for Tofino says of a program's fit.

usage: fit.py OUTPUT...           folders that p4c-barefoot wrote (with -g --verbose), one per chip: prints JSON
       fit.py --table JSON        prints the rows of docs/switch.md from it
       fit.py --picture JSON      prints docs/tofino.svg from it

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


# What a stage of both chips has, and the authors' program on Tofino 2 by Appendix C.2 of their paper, as far as that says.
A_STAGE = {"stateful_alus": 4, "sram_blocks": 80, "map_rams": 48, "tcam_blocks": 24, "logical_tables": 16}
PAPER = {"stateful_alus": 35, "sram_megabits": 39.9}
ROWS = {
    "stateful_alus": "stateful ALUs, one of them the meter's",
    "sram_blocks": "SRAM, blocks of 128 Kib",
    "sram_megabits": "SRAM, Mb",
    "map_rams": "map RAMs",
    "tcam_blocks": "TCAM blocks",
    "logical_tables": "logical tables",
}


def table(chips):
    """The rows of the table, chips and paper in columns."""
    each = lambda text: " | ".join(text(chip) for chip in chips)
    stages = lambda chip: "{ingress} and {egress} of {chip}".format(**chip["stages"])
    print(f"| stages, ingress and egress, of the chip's | {each(stages)} | – |")
    for key, name in ROWS.items():
        print(f"| {name} | {each(lambda chip: str(chip[key]))} | {PAPER.get(key, '–')} |")
    bits = lambda chip: "{ingress} and {egress}".format(**chip["phv_bits"])
    print(f"| PHV, bits of ingress and egress | {each(bits)} | – |")


def picture(chips):
    """Bars: the share of a whole chip that each program takes."""
    paper = {"target": "the paper, Tofino 2", "stages": chips[1]["stages"], "stateful_alus": PAPER["stateful_alus"]}
    paper["sram_blocks"] = PAPER["sram_megabits"] * 1e6 / SRAM_BITS
    print('<svg xmlns="http://www.w3.org/2000/svg" width="640" height="340" font-family="sans-serif" font-size="12">')
    print('<rect width="640" height="340" fill="white"/>')
    for place, (key, whole) in enumerate(A_STAGE.items()):
        print(f'<text x="150" y="{place * 60 + 34}" text-anchor="end">{ROWS[key].split(",")[0]}</text>')
        for line, (program, color) in enumerate(zip([*chips, paper], ["#7aa6c2", "#1f5f8b", "#c8702a"])):
            if key in program:
                part = program[key] / (whole * program["stages"]["chip"])
                y = place * 60 + 8 + line * 15
                print(f'<rect x="160" y="{y}" width="{part * 400:.1f}" height="13" fill="{color}"/>')
                print(f'<text x="{165 + part * 400:.1f}" y="{y + 11}">{program["target"]}: {part:.0%}</text>')
    print('<text x="160" y="325">share of all that the chip has, in all stages and both directions</text>\n</svg>')


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help") or len(sys.argv) == 2 and sys.argv[1] in ("--table", "--picture"):
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1:] and sys.argv[1] in ("-h", "--help") else 2)
    if sys.argv[1] in ("--table", "--picture"):
        show = table if sys.argv[1] == "--table" else picture
        show(json.loads(pathlib.Path(sys.argv[2]).read_text()))
        sys.exit()
    chips = [fit(folder) for folder in sys.argv[1:]]
    print(json.dumps(chips, indent=2))
    for chip in chips:
        if max(chip["stages"]["ingress"], chip["stages"]["egress"]) > chip["stages"]["chip"]:
            sys.exit(f"fit.py: the program does not fit {chip['target']}: {chip['stages']}")
