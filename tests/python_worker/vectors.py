"""Holds this worker's forms and numbers to the vectors (P33): `vectors.py ROOT_OF_THE_REPOSITORY`."""

import json
import sys
from pathlib import Path

import numpy as np

import numerics
import wire


def floats(text):
    """The f32 whose bits these digits are."""
    return np.frombuffer(bytes.fromhex("".join(text)), ">u4").astype(np.uint32).view(np.float32)


def double(digits):
    """The f64 with these bits."""
    return float(np.frombuffer(bytes.fromhex(digits), ">f8")[0])


def equal(a, b, what):
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    assert a.shape == b.shape and np.array_equal(a.view(np.uint32), b.view(np.uint32)), f"{what}: {a} and {b}"


def number(value):
    """Numbers beyond 2^53 are strings."""
    return int(value)


def check_forms(vectors):
    for packet in vectors["packets"]:
        name, data = packet["name"], bytes.fromhex(packet["hex"])
        header, payload = wire.parse(data)
        for field, value in packet["header"].items():
            assert getattr(header, field) == value, (name, field)
        assert header.packet(payload) == data, name
        if "norm" in packet:
            check_norm(packet["norm"], payload)
        if "mismatch" in packet:
            check_norm(packet["mismatch"]["slot"], payload[:20])
            check_norm(packet["mismatch"]["refused"], payload[20:])
        if "welcome" in packet:
            check_welcome(packet["welcome"], payload)
        if "join" in packet:
            join = packet["join"]
            rest = number(join["fingerprint"]), number(join["definitions"])
            assert wire.join_payload(number(join["nonce"]), join["session"], *rest) == payload
        if "ask" in packet:
            assert wire.parse_ask(payload) == number(packet["ask"]["nonce"])
        if "leave" in packet:
            assert wire.leave_payload(number(packet["leave"]["nonce"])) == payload
        if "pending" in packet:
            assert wire.parse_pending(payload) == number(packet["pending"]["joined"])
        if "refused" in packet:
            assert wire.parse_refused(payload) == tuple(packet["refused"].values())
        if "nudge" in packet:
            assert wire.parse_nudge(payload) == (packet["nudge"]["kind"], number(packet["nudge"]["seen"]))
        if "straggler" in packet:
            assert wire.parse_straggler(payload) == tuple(packet["straggler"].values())
    for tag in vectors["tags"]:
        fields = {name: value for name, value in tag.items() if name not in ("tag", "partitions")}
        assert wire.Norm(**fields).tag(tag["partitions"]) == tag["tag"], tag


def check_norm(fields, payload):
    norm, partitions = wire.Norm.parse(payload), fields["partitions"]
    for name, value in fields.items():
        if name != "partitions":
            assert (norm.tag(partitions) if name == "tag" else getattr(norm, name)) == value, (name, fields)
    assert norm.payload(partitions) == payload


def check_welcome(fields, payload):
    welcome = wire.Welcome.parse(payload)
    assert welcome.payload() == payload
    names = {"deadline_us": "deadline"}
    for name, value in fields.items():
        mine = getattr(welcome, names.get(name, name))
        wanted = number(value) if isinstance(value, str) else value
        if name == "shares":
            mine = [f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}" for ip, port in mine]
        if name == "tables":
            mine = [vars(table) | {"values": list(table.values)} for table in mine]
        if name == "rack":
            wanted = tuple(map(number, value.values()))
        assert mine == wanted, name


def check_numbers(vectors):
    for signs in vectors["signs"]:
        key = numerics.sign_key(int(signs["job_seed"], 16), signs["round"], signs["partition"])
        assert key == int(signs["key"], 16), signs
        for i, word in zip((0, 1, 16_383), signs["words"]):
            assert int(numerics.sign_words(key, i, 1)[0]) == int(word, 16), signs
    for cut in vectors["cuts"]:
        assert [d for _, _, d in numerics.cut(cut["length"], cut["block"])] == cut["partitions"], cut
    key = numerics.sign_key(int(vectors["job_seed"], 16), vectors["round"], vectors["partition"])
    assert key == int(vectors["sign_key"], 16)
    assert [f"{w:016x}" for w in numerics.sign_words(key, 0, 4)] == vectors["sign_words"]
    x, d = floats(vectors["vector"]), len(vectors["vector"])
    norm = numerics.norm(x)
    equal([norm], floats([vectors["norm"]]), "norm")
    y = numerics.forward(x, d, key)
    equal(y, floats(vectors["rotated"]), "forward transform")
    of_fraction = next(table for table in vectors["tables"] if table["values"] == vectors["table"])
    table = numerics.Table(vectors["table"], double(of_fraction["t_p"]))
    m = table.range(norm, d)
    equal([m], floats([vectors["range"]]), "M")
    indices = table.indices(y, m, np.array(vectors["draws"]))
    assert list(indices) == vectors["indices"]
    assert numerics.pack(indices, 4).hex() == vectors["packed"]
    residual = table.residual(y, m, indices)
    equal(residual, floats(vectors["residual"]), "residual")
    equal(numerics.inverse(residual, key), floats(vectors["inverse_of_residual"]), "inverse transform")
    equal(table.estimates(table.values[indices], m, 1), floats(vectors["estimate"]), "estimate")


def check_session(session):
    """Does what each worker and all together do, and compares every step."""
    seqs = {wire.NORM: 0, wire.DATA: 0}
    for number_of_call, call in enumerate(session["calls"]):
        down = [wire.parse(bytes.fromhex(packet)) for packet in call["down"]]
        ups = [[wire.parse(bytes.fromhex(packet)) for packet in packets] for packets in call["up"]]
        began = dict(seqs)
        for worker, up in enumerate(ups):
            _, welcome = wire.parse(bytes.fromhex(session["welcomes"][worker]))
            welcome = wire.Welcome.parse(welcome)
            seqs = dict(began)
            for header, _ in up:
                check_header(session, worker, welcome, header, seqs)
            check_norms(call, number_of_call, worker, welcome, up)
            if call["mode"] == wire.UNCOMPRESSED:
                check_raw(call, worker, len(ups), welcome, up, down)
            elif "mean" in call:
                check_compressed(call, number_of_call, worker, len(ups), welcome, up, down)
            else:
                assert all(header.kind == wire.NORM for header, _ in up), "no data of a call that has failed"
        check_sums(call, ups, down, welcome)


def check_header(session, worker, welcome, header, seqs):
    assert (header.job, header.worker, header.cookie) == (session["job"], worker, welcome.session)
    assert (header.num_workers, header.flags, header.count) == (session["workers"], 0, 0)
    assert header.table == (welcome.tables[0].table if header.kind == wire.DATA else 0)
    stream = wire.NORM if header.kind == wire.NORM else wire.DATA
    slots = welcome.norm_slots if stream == wire.NORM else welcome.data_slots
    assert (header.round, header.slot) == divmod(seqs[stream], slots), "seqs run on through all calls"
    seqs[stream] += 1


def check_norms(call, number_of_call, worker, welcome, up):
    x = floats([call["gradients"][worker]])
    norms = [payload for header, payload in up if header.kind == wire.NORM]
    parts = list(numerics.cut(call["length"], welcome.block))
    for norm, (offset, length, _) in zip(norms, parts, strict=True):
        part = x[offset : offset + length]
        value = np.max(np.abs(part)) if call["mode"] == wire.UNCOMPRESSED else numerics.norm(part)
        bits = wire.value_of(value, worker)
        table = 0 if call["mode"] == wire.UNCOMPRESSED else welcome.tables[0].table
        mine = wire.Norm(bits, call["length"] - offset, number_of_call, table, call["mode"], call["key"])
        assert norm == mine.payload(len(parts)), f"{wire.Norm.parse(norm)} and {mine}"


def results(down, kind):
    return [(header, payload) for header, payload in down if header.kind == kind]


def check_compressed(call, number_of_call, worker, workers, welcome, up, down):
    told = welcome.tables[0]
    table = numerics.Table(told.all_values(), told.t_p)
    x, mean = floats([call["gradients"][worker]]), floats([call["mean"]])
    data = iter([payload for header, payload in up if header.kind == wire.DATA])
    sums = iter(results(down, wire.RESULT))
    maxima = [wire.Norm.parse(payload).value for _, payload in results(down, wire.NORM_RESULT)]
    per_packet = told.coordinates()
    cut = numerics.cut(call["length"], welcome.block)
    for index, ((offset, length, d), part, bits) in enumerate(zip(cut, call["partitions"], maxima, strict=True)):
        assert (part["d"], part["norm"]) == (d, f"{bits:08x}")
        if bits == 0:
            equal(mean[offset : offset + length], np.zeros(length), "mean of nothing")
            continue
        key = numerics.sign_key(welcome.job_seed, number_of_call, index)
        y = numerics.forward(x[offset : offset + length], d, key)
        equal(y, floats([part["transformed"][worker]]), "transformed")
        m = table.range(numerics.float_of(bits), d)
        equal([m], floats([part["range"]]), "M")
        equal([table.step(m, workers)], floats([part["step"]]), "step")
        estimates = np.zeros(d, np.float32)
        for first in range(0, d, per_packet):
            indices = numerics.unpack(next(data), told.width)
            coordinates = y[first : first + per_packet]
            below, above = (table.indices(coordinates, m, np.full(per_packet, u)) for u in ((1 << 23) - 1, 0))
            assert np.all((indices == below) | (indices == above)), "a neighbour on the grid"
            header, payload = next(sums)
            means = table.estimates(numerics.unpack(payload, told.lane), m, header.count)
            estimates[first : first + per_packet] = means
        equal(numerics.inverse(estimates, key)[:length], mean[offset : offset + length], "mean")
    assert next(data, None) is None and next(sums, None) is None


def check_raw(call, worker, workers, welcome, up, down):
    x, mean = floats([call["gradients"][worker]]), floats([call["mean"]])
    data = [payload for header, payload in up if header.kind == wire.RAW]
    sums = results(down, wire.RAW_RESULT)
    maxima = [wire.Norm.parse(payload).value for _, payload in results(down, wire.NORM_RESULT)]
    at = 0
    for (offset, length, d), bits in zip(numerics.cut(call["length"], welcome.block), maxima, strict=True):
        padded = np.zeros(d, np.float32)
        padded[:length] = x[offset : offset + length]
        s = numerics.raw_exponent(numerics.float_of(bits), workers)
        means = []
        for first in range(0, d, 256):
            assert numerics.raw_words(padded[first : first + 256], s, workers) == data[at], "words of RAW"
            header, payload = sums[at]
            means.append(numerics.raw_mean(payload, s, header.count))
            at += 1
        equal(np.concatenate(means)[:length], mean[offset : offset + length], "mean of RAW")
    assert at == len(data) == len(sums)


def check_sums(call, ups, down, welcome):
    """What the aggregator makes of the packets of one seq."""
    for header, payload in down:
        kind = {wire.NORM_RESULT: wire.NORM, wire.RESULT: wire.DATA, wire.RAW_RESULT: wire.RAW}[header.kind]
        places = [[p for h, p in up if (h.kind, h.slot, h.round) == (kind, header.slot, header.round)] for up in ups]
        payloads = [place[0] for place in places]
        assert (header.worker, header.count, header.flags) == (255, len(ups), 0)
        if kind == wire.NORM:
            norms = [wire.Norm.parse(p) for p in payloads]
            assert wire.Norm.parse(payload).value == max(norm.value for norm in norms)
            assert payload[8:] == payloads[0][8:] and payload[:4] == payloads[0][:4]
            nan = wire.worker_of_nan(wire.Norm.parse(payload).value)
            assert nan == call.get("fails_because_of")
        elif kind == wire.DATA:
            told = welcome.tables[0]
            values = np.array(list(told.all_values()))
            total = sum(values[numerics.unpack(p, told.width)] for p in payloads)
            assert np.array_equal(total, numerics.unpack(payload, told.lane))
        else:
            total = sum(np.frombuffer(p, ">i4").astype(np.int64) for p in payloads)
            assert np.array_equal(total, np.frombuffer(payload, ">i4"))


def main(root):
    def read(path):
        return json.loads((root / path).read_text())

    check_forms(read("dataplane/protocol/golden/wire.json"))
    check_numbers(read("dataplane/codec/golden/codec.json"))
    for session in read("tests/vectors/all_reduce.json")["sessions"]:
        check_session(session)
    print("vectors: equal")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
