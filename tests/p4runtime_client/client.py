"""P4Runtime's Python client against thc-ps: P4Info, every table, groups, counters, packets, and wrong writes.

    client.py PATH_OF_THC_PS

The first part uses the stubs of the package p4runtime, the second the classes of p4runtime-shell.
"""

import contextlib
import io
import queue
import socket
import subprocess
import sys
import tempfile
import threading
from importlib.metadata import version
from pathlib import Path

import grpc
from google.protobuf import text_format
from google.rpc import code_pb2, status_pb2
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc

P4INFO = Path(__file__).parents[2] / "p4/build/thc.p4info.txtpb"
PATIENCE = 20
JOIN = 0x21


def encode(number):
    """A number as the specification wants it: as short as can be, but not empty."""
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")


class Server:
    """A thc-ps without jobs."""

    def __init__(self, program, *more):
        command = [program, "--listen", "127.0.0.1:0", "--p4runtime", "127.0.0.1:0", *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.p4runtime = self.workers = None
        for line in self.process.stdout:
            words = line.split()
            if words[0] == "p4runtime":
                self.p4runtime = words[1]
            elif words[0] == "ready":
                self.workers = words[1]
                break
        assert self.p4runtime and self.workers, "thc-ps does not get ready"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE)


class Client:
    """A controller by the plain stubs."""

    def __init__(self, address, election):
        self.channel = grpc.insecure_channel(address)
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(self.channel)
        self.election = p4runtime_pb2.Uint128(high=0, low=election)
        self.info = p4info_pb2.P4Info()
        text_format.Parse(P4INFO.read_text(), self.info)
        self.out, self.into = queue.Queue(), queue.Queue()
        self.stream = self.stub.StreamChannel(iter(self.out.get, None))
        threading.Thread(target=self._listen, daemon=True).start()
        hello = p4runtime_pb2.StreamMessageRequest()
        hello.arbitration.device_id = 0
        hello.arbitration.election_id.CopyFrom(self.election)
        self.out.put(hello)
        self.standing = self.message().arbitration.status.code

    def _listen(self):
        with contextlib.suppress(grpc.RpcError):
            for message in self.stream:
                self.into.put(message)

    def message(self):
        return self.into.get(timeout=PATIENCE)

    def close(self):
        self.out.put(None)
        self.stream.cancel()
        self.channel.close()

    def set_pipeline(self, info=None, device=b"", action="VERIFY_AND_COMMIT"):
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(device_id=0, election_id=self.election)
        request.action = getattr(p4runtime_pb2.SetForwardingPipelineConfigRequest, action)
        request.config.p4info.CopyFrom(info or self.info)
        request.config.p4_device_config = device
        request.config.cookie.cookie = 77
        self.stub.SetForwardingPipelineConfig(request)

    def write(self, *updates):
        """Writes updates, each a pair of kind and entity."""
        request = p4runtime_pb2.WriteRequest(device_id=0, election_id=self.election)
        for kind, entity in updates:
            update = request.updates.add(type=getattr(p4runtime_pb2.Update, kind))
            update.entity.CopyFrom(entity)
        self.stub.Write(request)

    def codes(self, *updates):
        """The codes of updates, by name."""
        try:
            self.write(*updates)
        except grpc.RpcError as error:
            return errors_of(error)
        return ["OK"] * len(updates)

    def read(self, *entities):
        request = p4runtime_pb2.ReadRequest(device_id=0, entities=entities)
        return [entity for answer in self.stub.Read(request) for entity in answer.entities]

    def find(self, kind, name):
        return next(one for one in getattr(self.info, kind) if one.preamble.name == name)

    def row(self, table, number, is_default=False):
        """A row whose key and parameters are `number`, as far as they have room for it; a lookup table's values are
        0 and that, for indices of 4 bits and lanes of 8."""
        table = self.find("tables", table) if isinstance(table, str) else table
        entity = p4runtime_pb2.Entity()
        entry = entity.table_entry
        entry.table_id = table.preamble.id
        for field in table.match_fields:
            match = entry.match.add(field_id=field.id)
            match.exact.value = encode(number % (1 << field.bitwidth))
        used = next(used for used in table.action_refs if used.scope != p4info_pb2.ActionRef.DEFAULT_ONLY)
        action = next(action for action in self.info.actions if action.preamble.id == used.id)
        entry.action.action.action_id = used.id
        for param in action.params:
            of_lookup = {"values": table_of(0, number), "width": 4, "lane": 8}
            value = encode(of_lookup.get(param.name, number % (1 << param.bitwidth)))
            entry.action.action.params.add(param_id=param.id, value=value)
        if is_default:
            del entry.match[:]
            entry.is_default_action = True
        return entity

    def with_params(self, entity, **values):
        """A row with these parameters instead."""
        action = next(a for a in self.info.actions if a.preamble.id == entity.table_entry.action.action.action_id)
        ids = {param.id: param.name for param in action.params}
        changed = p4runtime_pb2.Entity()
        changed.CopyFrom(entity)
        for param in changed.table_entry.action.action.params:
            if ids[param.param_id] in values:
                param.value = encode(values[ids[param.param_id]])
        return changed

    def counter(self, name, index):
        entity = p4runtime_pb2.Entity()
        entity.counter_entry.counter_id = self.find("counters", name).preamble.id
        if index is not None:
            entity.counter_entry.index.index = index
        return entity


def table_of(*values):
    """The parameter of a lookup table with these first values."""
    return int.from_bytes(bytes(values).ljust(16, b"\0"), "big")


def errors_of(error):
    """What a failed batch's status says of each part."""
    assert error.code() == grpc.StatusCode.UNKNOWN, error
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    codes = []
    for any_message in status_pb2.Status.FromString(details).details:
        part = p4runtime_pb2.Error()
        assert any_message.Unpack(part), any_message
        codes.append(code_pb2.Code.Name(part.canonical_code))
    return codes


def code_of(call):
    """The code that a call fails with."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def group(number, replicas):
    entity = p4runtime_pb2.Entity()
    entry = entity.packet_replication_engine_entry.multicast_group_entry
    entry.multicast_group_id = number
    for port, instance in replicas:
        entry.replicas.add(egress_port=port, instance=instance)
    return entity


def job(client, number, **values):
    """A row of `jobs` that fits."""
    row = client.with_params(client.row("jobs", 0), **{"workers": 2, "quorum": 2, "data_slots": 16,
                                                      "norm_slots": 4, "group": 1, "cookie": 5, **values})
    row.table_entry.match[0].exact.value = encode(number)
    return row


def without_own(info):
    """A P4Info without what is a server's own, the forms of packets and the room for them, and these; and without the header of
    packets to the controller, which a server has none of."""
    rest, forms, room = p4info_pb2.P4Info(), set(), ""
    rest.CopyFrom(info)
    del rest.controller_packet_metadata[:]
    for table in rest.tables:
        kept = []
        for annotation in table.preamble.annotations:
            if annotation.startswith("@forms("):
                forms |= set(annotation.split('"')[1].split())
            elif annotation.startswith("@room("):
                room = annotation.split('"')[1]
            else:
                kept.append(annotation)
        del table.preamble.annotations[:]
        table.preamble.annotations.extend(kept)
    return rest, forms, room


def check_p4info(client):
    request = p4runtime_pb2.GetForwardingPipelineConfigRequest(device_id=0)
    assert code_of(lambda: client.stub.GetForwardingPipelineConfig(request)) == "FAILED_PRECONDITION"
    assert code_of(lambda: client.write(("INSERT", client.row("passes", 1)))) == "FAILED_PRECONDITION"
    other = p4info_pb2.P4Info()
    other.CopyFrom(client.info)
    other.tables[0].size += 1
    assert code_of(lambda: client.set_pipeline(other)) == "INVALID_ARGUMENT"
    assert code_of(lambda: client.set_pipeline(device=b"lane = 9")) == "INVALID_ARGUMENT"
    client.set_pipeline(device=b'{"of": "BMv2"}', action="VERIFY")
    client.set_pipeline()
    config = client.stub.GetForwardingPipelineConfig(request).config
    told, own = without_own(client.info), without_own(config.p4info)
    # The forms of packets are the server's own, all of a switch's among them, and so is the room.
    assert told[0] == own[0] and told[1] < own[1] and config.cookie.cookie == 77
    assert not told[2] and [int(number) > 0 for number in own[2].split()] == [True, True]
    version = client.stub.Capabilities(p4runtime_pb2.CapabilitiesRequest()).p4runtime_api_version
    return f"{len(config.p4info.tables)} tables, P4Runtime {version}"


def check_every_table(client):
    for table in client.info.tables:
        name = table.preamble.name
        number = JOIN if name == "control_plane" else 2
        row = job(client, number) if name == "jobs" else client.row(name, number)
        assert client.codes(("MODIFY", row), ("DELETE", row)) == ["NOT_FOUND", "NOT_FOUND"], name
        assert client.codes(("INSERT", row), ("INSERT", row)) == ["OK", "ALREADY_EXISTS"], name
        assert client.read(row) == [row], name
        everything = p4runtime_pb2.Entity()
        everything.table_entry.table_id = table.preamble.id
        assert client.read(everything) == [row], name
        everything.table_entry.is_default_action = True
        [default] = client.read(everything)
        expected = table.initial_default_action.action_id
        assert default.table_entry.action.action.action_id == expected, name
        if table.const_default_action_id:
            constant = p4runtime_pb2.Entity()
            constant.CopyFrom(default)
            assert client.codes(("MODIFY", constant)) == ["PERMISSION_DENIED"], name
        else:
            changed = client.row(name, 1, is_default=True)
            assert client.codes(("INSERT", changed), ("MODIFY", changed)) == ["INVALID_ARGUMENT", "OK"], name
            assert client.read(everything) == [changed], name
            changed.table_entry.ClearField("action")
            client.write(("MODIFY", changed))
            assert client.read(everything) == [default], name
        client.write(("MODIFY", row), ("DELETE", row))
        assert client.read(row) == [], name
    # All tables at once.
    client.write(("INSERT", client.row("passes", 1)), ("INSERT", client.row("stations", 1)))
    everything = p4runtime_pb2.Entity()
    everything.table_entry.SetInParent()
    assert len(client.read(everything)) == 2
    client.write(("DELETE", client.row("passes", 1)), ("DELETE", client.row("stations", 1)))
    return ", ".join(table.preamble.name for table in client.info.tables)


def check_groups(client):
    wanted = group(7, [(1, 0), (1, 1), (2, 0)])
    assert client.codes(("MODIFY", wanted), ("INSERT", wanted), ("INSERT", wanted)) == [
        "NOT_FOUND", "OK", "ALREADY_EXISTS"]
    assert client.read(group(0, [])) == [wanted] == client.read(group(7, []))
    client.write(("MODIFY", group(7, [(3, 9)])))
    assert client.read(group(7, [])) == [group(7, [(3, 9)])]
    wrong = [group(0, []), group(1 << 16, []), group(8, [(1, 1), (1, 1)]), group(8, [(1, 1 << 16)])]
    assert client.codes(*[("INSERT", entity) for entity in wrong]) == ["INVALID_ARGUMENT"] * 4
    client.write(("DELETE", group(7, [])))
    assert client.read(group(0, [])) == []
    return "written, read, refused"


def check_counters(client):
    read = {}
    for counter in client.info.counters:
        name = counter.preamble.name
        cells = client.read(client.counter(name, None))
        assert len(cells) == counter.size, name
        read[name] = len(cells)
        cell = client.counter(name, counter.size - 1)
        cell.counter_entry.data.packet_count = 5
        assert client.codes(("MODIFY", cell)) == ["UNIMPLEMENTED"]
    return ", ".join(f"{name} {size}" for name, size in read.items())


def check_wrong_writes(client):
    room = client.find("tables", "jobs").size
    for job_number in range(room):
        client.write(("INSERT", job(client, job_number)))
    full = client.codes(("INSERT", job(client, room)), ("INSERT", job(client, 3)), ("DELETE", job(client, 0)))
    assert full == ["RESOURCE_EXHAUSTED", "ALREADY_EXISTS", "OK"]
    wide = client.row("lookup", 1)
    wide.table_entry.action.action.params[0].value = encode(table_of(*range(0, 256, 17)))
    allowed = client.row("job_tables", 1)
    # 2 workers with values up to 255 do not fit lanes of 8 bits, whichever row comes last.
    assert client.codes(("INSERT", wide), ("INSERT", allowed)) == ["OK", "INVALID_ARGUMENT"]
    client.write(("DELETE", wide))
    assert client.codes(("INSERT", allowed), ("INSERT", wide)) == ["OK", "INVALID_ARGUMENT"]
    client.write(("DELETE", allowed), *[("DELETE", job(client, number)) for number in range(1, room)])
    huge = job(client, 1, data_slots=65536, norm_slots=65536)
    codes = client.codes(*[("INSERT", job(client, 1, **wrong)) for wrong in [
        {"workers": 0}, {"workers": 65}, {"quorum": 3}, {"quorum": 0}, {"data_slots": 3}, {"norm_slots": 0}]])
    assert codes == ["INVALID_ARGUMENT"] * 6
    assert client.codes(("INSERT", huge)) == ["OK"]
    client.write(("DELETE", huge))

    # P6: 0 first, then strictly increasing over 2, 4, 8 or 16 values, then 0.
    tables = [client.with_params(client.row("lookup", 1), values=table_of(*values)) for values in [
        (0, 0), (1, 2), (0, 5, 5, 6), (0, 5, 6), (0, 9, 8, 7), (0, 1, 2, 3, 4)]]
    assert client.codes(*[("INSERT", table) for table in tables]) == ["INVALID_ARGUMENT"] * len(tables)
    # What fails of a big batch is told as far as trailing metadata have room, and never too much for them.
    many = client.codes(*[("DELETE", client.row("lookup", 1))] * 500)
    assert 20 < len(many) < 500 and set(many) == {"NOT_FOUND"}, len(many)

    row = client.row("members", 1)
    wrong = []
    for change in ["table", "key", "field", "priority", "ternary", "action", "param", "width"]:
        entity = p4runtime_pb2.Entity()
        entity.CopyFrom(row)
        entry = entity.table_entry
        if change == "table":
            entry.table_id = 1
        elif change == "key":
            del entry.match[1]
        elif change == "field":
            entry.match[1].field_id = 9
        elif change == "priority":
            entry.priority = 1
        elif change == "ternary":
            entry.match[0].ternary.value = entry.match[0].ternary.mask = b"\x01"
        elif change == "action":
            entry.action.action.action_id = client.find("actions", "set_job").preamble.id
        elif change == "param":
            del entry.action.action.params[0]
        elif change == "width":
            entry.action.action.params[0].value = b"\x01\x00\x00"
        wrong.append(entity)
    assert client.codes(*[("INSERT", entity) for entity in wrong]) == ["INVALID_ARGUMENT"] * len(wrong)
    row.table_entry.match[0].exact.value = b"\x01\x00\x00"
    register, clone, nothing = p4runtime_pb2.Entity(), p4runtime_pb2.Entity(), p4runtime_pb2.Entity()
    register.register_entry.register_id = client.info.registers[0].preamble.id
    clone.packet_replication_engine_entry.clone_session_entry.session_id = 1
    codes = client.codes(("INSERT", row), ("MODIFY", register), ("INSERT", clone), ("INSERT", nothing),
                         ("UNSPECIFIED", client.row("passes", 1)), ("INSERT", client.row("control_plane", 2)))
    assert codes == ["OUT_OF_RANGE", "UNIMPLEMENTED", "UNIMPLEMENTED", "INVALID_ARGUMENT", "INVALID_ARGUMENT",
                     "UNIMPLEMENTED"]
    try:
        client.read(register)
        raise AssertionError("registers are not served")
    except grpc.RpcError as error:
        assert errors_of(error) == ["UNIMPLEMENTED"]
    return "each with the specification's code"


def check_arbitration(client, address):
    second = Client(address, 1)
    assert second.standing == code_pb2.ALREADY_EXISTS
    assert code_of(lambda: second.write(("INSERT", second.row("passes", 1)))) == "PERMISSION_DENIED"
    third = Client(address, 9)
    assert third.standing == code_pb2.OK
    for backup in [client, second]:
        assert backup.message().arbitration.status.code == code_pb2.ALREADY_EXISTS
    assert code_of(lambda: client.write(("INSERT", client.row("passes", 1)))) == "PERMISSION_DENIED"
    third.close()
    assert client.message().arbitration.status.code == code_pb2.NOT_FOUND
    again = p4runtime_pb2.StreamMessageRequest()
    client.election.low = 10
    again.arbitration.election_id.CopyFrom(client.election)
    client.out.put(again)
    assert client.message().arbitration.status.code == code_pb2.OK
    second.close()
    return "three controllers"


def check_packets(client, workers):
    host, port = workers.rsplit(":", 1)
    worker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    worker.bind(("127.0.0.1", 0))
    worker.settimeout(PATIENCE)
    control = client.row("control_plane", JOIN)
    client.write(("INSERT", control))
    join = bytes([3, JOIN, 0, 0, 0, 1, 0, 0]) + bytes(12) + bytes(32)
    worker.sendto(join, (host, int(port)))
    frame = client.message().packet.payload
    assert frame[42:] == join and frame[34:36] == worker.getsockname()[1].to_bytes(2, "big")
    # Back to where it came from: source and destination change places, which keeps the checksum.
    back = frame[6:12] + frame[:6] + frame[12:26] + frame[30:34] + frame[26:30]
    back += frame[36:38] + frame[34:36] + frame[38:]
    out = p4runtime_pb2.StreamMessageRequest()
    out.packet.payload = back
    client.out.put(out)
    assert worker.recv(2048) == join
    out.packet.payload = back[:30]
    client.out.put(out)
    assert client.message().error.canonical_code == code_pb2.INVALID_ARGUMENT
    client.write(("DELETE", control))
    return "in and out"


def check_shell(address, answers):
    """The same by p4runtime-shell's classes."""
    import p4runtime_sh.shell as shell
    from p4runtime_sh.p4runtime import P4RuntimeWriteException

    with tempfile.NamedTemporaryFile() as empty:
        config = shell.FwdPipeConfig(str(P4INFO), empty.name)
        shell.setup(device_id=0, grpc_addr=address, election_id=(0, 20), config=config)
    try:
        row = shell.TableEntry("members")(action="set_member")
        # Setting a value shows it.
        with contextlib.redirect_stdout(io.StringIO()):
            row.match["job"] = "1"
            row.match["worker"] = "2"
            row.action["ingress_port"] = "0"
            row.action["address"] = "10.9.0.1"
            row.action["udp_port"] = "4000"
        row.insert()
        seen = []
        shell.TableEntry("members").read(lambda entry: seen.append(str(entry)))
        assert len(seen) == 1 and "set_member" in seen[0], seen
        try:
            row.insert()
            raise AssertionError("the row is there already")
        except P4RuntimeWriteException as error:
            assert "ALREADY_EXISTS" in str(error), error
        row.delete()
        copies = shell.MulticastGroupEntry(5)
        copies.add(1, 3)
        copies.insert()
        [read] = shell.MulticastGroupEntry(5).read()
        assert [(copy.egress_port, copy.instance) for copy in read.replicas] == [(1, 3)]
        copies.delete()
        cells = []
        shell.CounterEntry("answers").read(lambda cell: cells.append(cell))
        assert len(cells) == answers, len(cells)
        default = shell.TableEntry("stations")(action="flood", is_default=True)
        with contextlib.redirect_stdout(io.StringIO()):
            default.action["group"] = "9"
        default.modify()
    finally:
        shell.teardown()
    return f"p4runtime-shell {version('p4runtime-shell')}"


def main():
    [program] = sys.argv[1:]
    print(f"p4runtime_client: p4runtime {version('p4runtime')}, grpcio {version('grpcio')}, "
          f"protobuf {version('protobuf')}, Python {sys.version.split()[0]}")
    with Server(program) as server:
        client = Client(server.p4runtime, 2)
        assert client.standing == code_pb2.OK
        checks = [
            ("P4Info", lambda: check_p4info(client)),
            ("tables", lambda: check_every_table(client)),
            ("groups", lambda: check_groups(client)),
            ("counters", lambda: check_counters(client)),
            ("wrong writes", lambda: check_wrong_writes(client)),
            ("packets", lambda: check_packets(client, server.workers)),
            ("arbitration", lambda: check_arbitration(client, server.p4runtime)),
            ("shell", lambda: check_shell(server.p4runtime, client.find("counters", "answers").size)),
        ]
        for name, check in checks:
            print(f"  {name}: {check()}", flush=True)
        client.close()
    print("p4runtime_client: all well")


if __name__ == "__main__":
    main()
