// BMv2's entry to the shared parser: packets that were recirculated start with pass_h.
const bit<32> INSTANCE_RECIRCULATED = 4;

parser SwitchParser(
    packet_in packet,
    out headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard)
{
    PacketParser() packets;

    state start {
        hdr.pass.setInvalid();
        transition select(standard.instance_type) {
            INSTANCE_RECIRCULATED: between;
            default: headers;
        }
    }

    state between {
        packet.extract(hdr.pass);
        meta.between = true;
        meta.done_left = hdr.pass.kept;
        transition headers;
    }

    state headers {
        packets.apply(packet, hdr, meta);
        transition accept;
    }
}
